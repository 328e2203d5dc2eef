//! Azure's wire server: the machine's goal state, and its health report.
//!
//! Follows what Azure's Linux agent and azure-init send: protocol version 2012-11-30.

use crate::base::error::{Error, Result};
use crate::document::xml;
use crate::link::Uplink;
use crate::link::dhcp::Lease;
use crate::link::dhcp::packet::option::AZURE_ENDPOINT;
use crate::link::http::{Client, Request, refused};
use std::net::Ipv4Addr;

/// The wire server's address if DHCP names none.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
const AGENT: (&str, &str) = ("x-ms-agent-name", "WALinuxAgent");
const VERSION: (&str, &str) = ("x-ms-version", "2012-11-30");
const CONTENT_TYPE: (&str, &str) = ("Content-Type", "text/xml; charset=utf-8");
/// The cipher for this machine's certificates.
const CIPHER: (&str, &str) = ("x-ms-cipher-name", "DES_EDE3_CBC");
const CERTIFICATE: &str = "x-ms-guest-agent-public-x509-cert";
/// The largest document that is accepted, in bytes.
const MAX_DOCUMENT: usize = 1 << 20;
/// Statuses that are retried besides the usual ones: the server may learn of a machine only a moment after it
/// starts.
const NOT_YET: &[u16] = &[400, 403, 404, 409, 410];
/// The longest description of a failure, in characters.
const MAX_DESCRIPTION: usize = 512;

/// The wire server's address: from the uplink's lease, else from another lease, else the well-known one.
pub fn address(uplink: &Uplink, others: &[Lease]) -> Ipv4Addr {
    uplink.lease.iter().chain(others).find_map(|lease| lease.address_option(AZURE_ENDPOINT)).unwrap_or(ADDRESS)
}

/// The machine's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health<'a> {
    Ready,
    /// Provisioning failed, with a description of at most 512 characters.
    Failed(&'a str),
}

/// Talks to the wire server at `address`.
pub struct WireServer<'a> {
    pub client: &'a Client,
    pub address: Ipv4Addr,
    /// How often a request is sent at most.
    pub tries: u32,
}

/// The wire server's description of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalState {
    incarnation: String,
    container: String,
    instance: String,
    /// The URL of the machine's certificates.
    pub certificates: Option<String>,
}

impl WireServer<'_> {
    /// The machine's goal state.
    ///
    /// # Errors
    /// The server does not answer, or the response is not a goal state.
    pub fn goal_state(&self) -> Result<GoalState> {
        let url = format!("http://{}/machine/?comp=goalstate", self.address);
        let body = self.send(&Request { headers: &[AGENT, VERSION], ..Request::get(&url) })?;
        let root = xml::parse(&url, &body)?;
        let text = |path: &[&str]| root.at(path).map(|e| e.text.trim().to_owned()).filter(|t| !t.is_empty());
        let required = |path: &[&str]| {
            let name = path.last().copied().unwrap_or_default();
            text(path).ok_or_else(|| Error::new(format!("{url}: expected a goal state with {name}")))
        };
        const ROLE: [&str; 3] = ["Container", "RoleInstanceList", "RoleInstance"];
        let [container, list, role] = ROLE;
        Ok(GoalState {
            incarnation: required(&["Incarnation"])?,
            container: required(&[container, "ContainerId"])?,
            instance: required(&[container, list, role, "InstanceId"])?,
            certificates: text(&[container, list, role, "Configuration", "Certificates"])
                .filter(|u| u.starts_with("http://")),
        })
    }

    /// The encrypted certificates at `url`, in base64. `transport` is the transport certificate: its base64
    /// without PEM's header and line breaks.
    ///
    /// # Errors
    /// The server does not answer, or has no certificates.
    pub fn certificates(&self, url: &str, transport: &str) -> Result<String> {
        let headers = [AGENT, VERSION, CIPHER, (CERTIFICATE, transport)];
        let body = self.send(&Request { headers: &headers, ..Request::get(url) })?;
        let data = xml::parse(url, &body)?.child("Data").map(|data| data.text.trim().to_owned());
        data.filter(|data| !data.is_empty()).ok_or_else(|| Error::new(format!("{url}: expected certificates")))
    }

    /// Reports the machine's health.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn report(&self, goal: &GoalState, health: Health) -> Result<()> {
        let url = format!("http://{}/machine?comp=health", self.address);
        let body = document(goal, health);
        self.send(&Request { headers: &[AGENT, VERSION, CONTENT_TYPE], ..Request::post(&url, body.as_bytes()) })
            .map(drop)
    }

    fn send(&self, request: &Request) -> Result<Vec<u8>> {
        let request = Request { retry: NOT_YET, tries: self.tries, limit: MAX_DOCUMENT, ..request.clone() };
        let reply = self.client.send(&request)?;
        match reply.status {
            200..=299 => Ok(reply.body),
            status => Err(refused(request.method, request.url, status)),
        }
    }
}

/// The health report.
fn document(goal: &GoalState, health: Health) -> String {
    let state = match health {
        Health::Ready => "<State>Ready</State>".to_owned(),
        Health::Failed(description) => {
            let description: String = description.chars().take(MAX_DESCRIPTION).collect();
            format!(
                "<State>NotReady</State><Details><SubStatus>ProvisioningFailed</SubStatus><Description>{}</Description></Details>",
                escaped(&description)
            )
        }
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<Health><GoalStateIncarnation>{}</GoalStateIncarnation><Container>\
         <ContainerId>{}</ContainerId><RoleInstanceList><Role><InstanceId>{}</InstanceId><Health>{state}</Health></Role>\
         </RoleInstanceList></Container></Health>\n",
        escaped(&goal.incarnation),
        escaped(&goal.container),
        escaped(&goal.instance),
    )
}

/// A text escaped for use as an element's content.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::link::http::script::{Answer, Script};
    use crate::link::http::{Findings, Redirects};
    use std::sync::Arc;
    use std::time::Duration;

    /// A goal state with certificates, of the server 10.0.0.9.
    pub const GOAL_STATE: &str = "<?xml version=\"1.0\"?><GoalState><Incarnation>1</Incarnation><Container><ContainerId>c&amp;1\
        </ContainerId><RoleInstanceList><RoleInstance><InstanceId>i.vm</InstanceId><Configuration><Certificates>\
        http://10.0.0.9/certificates</Certificates></Configuration></RoleInstance></RoleInstanceList></Container></GoalState>";

    const GOAL_STATE_URL: &str = "http://10.0.0.9/machine/?comp=goalstate";
    const HEALTH_URL: &str = "http://10.0.0.9/machine?comp=health";

    /// A client over a script, and the script.
    pub fn client(script: Script) -> (Client, Arc<Script>) {
        let script = Arc::new(script);
        let deadline = Deadline::after(Duration::from_secs(60));
        let uplink = Uplink::system();
        (Client::over(script.clone(), &uplink, Redirects::SameOrigin, deadline, &Findings::default()), script)
    }

    #[test]
    fn health_is_reported_for_the_goal_state() {
        let script = Script::default()
            .with("GET", GOAL_STATE_URL, Answer::new(404, ""))
            .with("GET", GOAL_STATE_URL, Answer::new(200, GOAL_STATE))
            .with("POST", HEALTH_URL, Answer::new(200, ""));
        let (client, script) = client(script);
        let server = WireServer { client: &client, address: Ipv4Addr::new(10, 0, 0, 9), tries: 3 };
        let goal = server.goal_state().unwrap();
        assert_eq!(goal.certificates.as_deref(), Some("http://10.0.0.9/certificates"));
        server.report(&goal, Health::Ready).unwrap();
        server.report(&goal, Health::Failed(&("a<b".to_owned() + &"x".repeat(600)))).unwrap();
        let bodies: Vec<_> = script.sent().iter().skip(2).map(|s| xml::parse("t", &s.body).unwrap()).collect();
        let state = ["Container", "RoleInstanceList", "Role", "Health", "State"];
        assert_eq!(bodies[0].at(&state).unwrap().text, "Ready");
        assert_eq!(bodies[1].at(&state).unwrap().text, "NotReady");
        assert_eq!(bodies[1].at(&["Container", "ContainerId"]).unwrap().text, "c&1");
        let description = ["Container", "RoleInstanceList", "Role", "Health", "Details", "Description"];
        let description = &bodies[1].at(&description).unwrap().text;
        assert!(description.starts_with("a<bxx") && description.len() == 512);
    }

    #[test]
    fn what_is_no_goal_state_is_an_error() {
        for (body, why) in
            [("<html/>", "Incarnation"), ("nonsense", "not valid XML"), ("<a><Incarnation/></a>", "with In")]
        {
            let (client, _) = client(Script::default().with("GET", GOAL_STATE_URL, Answer::new(200, body)));
            let server = WireServer { client: &client, address: Ipv4Addr::new(10, 0, 0, 9), tries: 3 };
            let error = server.goal_state().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn dhcp_names_the_server() {
        let mut uplink = Uplink::system();
        let lease = |server: [u8; 4]| {
            let mut lease = Lease::default();
            lease.options.insert(AZURE_ENDPOINT, server.to_vec());
            lease
        };
        assert_eq!(address(&uplink, &[]), ADDRESS);
        assert_eq!(address(&uplink, &[Lease::default(), lease([10, 0, 0, 1])]), Ipv4Addr::new(10, 0, 0, 1));
        uplink.lease = Some(lease([10, 0, 0, 2]));
        assert_eq!(address(&uplink, &[lease([10, 0, 0, 1])]), Ipv4Addr::new(10, 0, 0, 2));
    }
}
