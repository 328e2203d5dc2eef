//! OAuth 1.0 with PLAINTEXT signatures (RFC 5849, section 3.4.4), as MAAS asks for it.

use super::{Client, Reply, Request};
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::base::percent;
use crate::base::random;
use crate::document::Value;
use std::sync::atomic::{AtomicI64, Ordering};

/// How far the server's clock may differ, in seconds, before a refused request is repeated with the server's
/// time.
const MAX_SKEW: i64 = 5;

/// OAuth credentials, and how far the server's clock is ahead.
pub struct OAuth {
    consumer_key: String,
    consumer_secret: String,
    token_key: String,
    token_secret: String,
    /// In seconds.
    skew: AtomicI64,
}

impl OAuth {
    /// The credentials of a section of the configuration: `consumer_key`, `consumer_secret` (which may be empty or absent),
    /// `token_key` and `token_secret`. None if all are absent.
    ///
    /// # Errors
    /// Some are absent.
    pub fn of(section: &Value) -> Result<Option<OAuth>> {
        let text = |key: &str| section.get(key).and_then(Value::text).unwrap_or_default();
        let (consumer_key, token_key, token_secret) = (text("consumer_key"), text("token_key"), text("token_secret"));
        let missing = [&consumer_key, &token_key, &token_secret].iter().filter(|value| value.is_empty()).count();
        match missing {
            3 => Ok(None),
            0 => Ok(Some(OAuth {
                consumer_key,
                consumer_secret: text("consumer_secret"),
                token_key,
                token_secret,
                skew: AtomicI64::new(0),
            })),
            _ => Err(Error::new("expected all or none of consumer_key, token_key and token_secret")),
        }
    }

    /// Sends a signed request. If it is refused (401, 403) and the clocks differ, it is sent again with the
    /// server's time. The signature is not sent to another origin after a redirect.
    ///
    /// # Errors
    /// As [`Client::send`]; or the kernel returns no random numbers.
    pub fn send(&self, client: &Client, request: &Request) -> Result<Reply> {
        let reply = self.send_once(client, request)?;
        let date = reply.header("date").and_then(clock::parse_http_date).filter(|_| matches!(reply.status, 401 | 403));
        let Some(date) = date.and_then(|date| i64::try_from(date).ok()) else { return Ok(reply) };
        let skew = date.saturating_sub(now(client));
        if self.skew.swap(skew, Ordering::Relaxed).abs_diff(skew) <= MAX_SKEW.unsigned_abs() {
            return Ok(reply);
        }
        log::info!(
            "the clock of this machine and the server's differ by {skew} s: requests are signed with the server's time"
        );
        self.send_once(client, request)
    }

    fn send_once(&self, client: &Client, request: &Request) -> Result<Reply> {
        let mut nonce = [0; 8];
        random::fill(&mut nonce, "a signature")?;
        let time = now(client).saturating_add(self.skew.load(Ordering::Relaxed)).max(0);
        let authorization = self.authorization(u64::from_ne_bytes(nonce), time);
        let mut headers = request.headers.to_vec();
        headers.push(("Authorization", &authorization));
        client.send(&Request { headers: &headers, ..request.clone() })
    }

    /// The header's value (RFC 5849, section 3.5.1).
    fn authorization(&self, nonce: u64, time: i64) -> String {
        // The secrets are encoded twice: in the signature (section 3.4.4), and in the header (section 3.6 of
        // RFC 5849).
        let encoded = |text: &str| percent::encode(text, percent::ALL);
        let signature = format!("{}&{}", encoded(&self.consumer_secret), encoded(&self.token_secret));
        format!(
            "OAuth oauth_nonce=\"{nonce}{time}\", oauth_timestamp=\"{time}\", oauth_version=\"1.0\", \
             oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{}\", oauth_token=\"{}\", oauth_signature=\"{}\"",
            encoded(&self.consumer_key),
            encoded(&self.token_key),
            encoded(&signature)
        )
    }
}

/// The time of day, in seconds since 1970.
fn now(client: &Client) -> i64 {
    i64::try_from(clock::since_1970(client.now()).as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::script::{Answer, Script};
    use super::super::{Findings, Redirects};
    use super::*;
    use crate::base::deadline::Deadline;
    use crate::document::yaml;
    use crate::link::Uplink;
    use std::sync::Arc;
    use std::time::Duration;

    const URL: &str = "http://10.0.0.2:5240/MAAS/x";

    fn oauth(text: &str) -> Result<Option<OAuth>> {
        OAuth::of(&yaml::parse("t", text).unwrap())
    }

    #[test]
    fn all_credentials_or_none() {
        assert!(oauth("{metadata_url: u}").unwrap().is_none());
        assert!(oauth("{consumer_key: a, token_key: b}").is_err() && oauth("{token_secret: b}").is_err());
        let full = oauth("{consumer_key: a b, consumer_secret: 'c&', token_key: 1, token_secret: ü}").unwrap().unwrap();
        assert_eq!(
            full.authorization(7, 90),
            "OAuth oauth_nonce=\"790\", oauth_timestamp=\"90\", oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", \
             oauth_consumer_key=\"a%20b\", oauth_token=\"1\", oauth_signature=\"c%2526%26%25C3%25BC\""
        );
    }

    /// The statuses of the answers, and the timestamps of the requests.
    fn sent(dates: &[&str]) -> (u16, Vec<i64>) {
        let refused = |date: &&str| {
            let headers = vec![("date".to_owned(), (*date).to_owned())];
            Answer::Reply(Reply { status: 401, headers, ..Reply::default() })
        };
        let script = dates.iter().fold(Script::default(), |script, date| script.with("GET", URL, refused(date)));
        let script = Arc::new(script.with("GET", URL, Answer::new(200, "")));
        let deadline = Deadline::after(Duration::from_secs(60));
        let client =
            Client::over(script.clone(), &Uplink::system(), Redirects::SameOrigin, deadline, &Findings::default());
        let oauth = oauth("{consumer_key: a, token_key: b, token_secret: c}").unwrap().unwrap();
        let status = oauth.send(&client, &Request::get(URL)).unwrap().status;
        let time = |header: &str| header.split("oauth_timestamp=\"").nth(1)?.split('"').next()?.parse().ok();
        (status, script.sent().iter().map(|s| time(&s.headers[0].1).unwrap()).collect())
    }

    #[test]
    fn the_servers_clock_is_used_where_it_differs() {
        // The script's clock is at 1700000000.
        assert_eq!(sent(&[]), (200, vec![1_700_000_000]));
        assert_eq!(sent(&["Thu, 16 Nov 2023 00:00:00 GMT"]), (200, vec![1_700_000_000, 1_700_092_800]));
        assert_eq!(sent(&["Tue, 14 Nov 2023 22:13:24 GMT"]).0, 401);
        assert_eq!(sent(&["yesterday"]).0, 401);
        assert_eq!(sent(&["Thu, 16 Nov 2023 00:00:00 GMT"; 2]), (401, vec![1_700_000_000, 1_700_092_800]));
    }
}
