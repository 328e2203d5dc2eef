//! The user-data of a WSL distribution, merged from the Ubuntu Pro agent's and the user's or Landscape's.

use crate::base::error::Result;
use crate::document::{Map, Value, json, to_yaml, yaml};
use crate::root::Root;

/// The path of Landscape's client configuration in a cloud-config.
const CLIENT: [&str; 2] = ["landscape", "client"];
const REQUEST: &str = "installation_request_id";

/// A file of user-data.
pub struct Document {
    path: String,
    text: String,
    /// Its content, if it is a cloud-config.
    config: Option<Map>,
}

impl Document {
    /// Reads a file. If it configures Landscape's client without an installation request, `request` becomes that.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(root: &Root, path: &str, request: Option<&str>) -> Result<Option<Document>> {
        let Some(bytes) = root.read(path)? else { return Ok(None) };
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        let mut config =
            match text.trim_start().to_ascii_lowercase().starts_with("#cloud-config").then(|| yaml::parse(path, &text))
            {
                Some(Ok(Value::Map(map))) => Some(map),
                _ => None,
            };
        if let (Some(config), Some(request)) = (&mut config, request)
            && let Some(client) = client(config)
        {
            if !client.contains_key(REQUEST) {
                client.insert(REQUEST, request);
            }
            text = format!("#cloud-config\n{}", written(config));
        }
        Ok(Some(Document { path: path.to_owned(), text, config }))
    }
}

fn client(config: &mut Map) -> Option<&mut Map> {
    let mut at = config;
    for key in CLIENT {
        at = match at.get_mut(key)? {
            Value::Map(map) => map,
            _ => return None,
        };
    }
    Some(at)
}

fn written(config: &Map) -> String {
    to_yaml(&json::sorted(&Value::Map(config.clone()))).trim().to_owned()
}

/// Merges both documents: the agent's top-level keys replace the user's, except for the user's tags for
/// Landscape's client. Two that cannot be merged become an include of both.
pub fn merged(agent: Option<Document>, user: Option<Document>) -> Option<String> {
    let has_text = |document: &Document| !document.text.is_empty();
    let (agent, user) = match (agent.filter(has_text), user.filter(has_text)) {
        (Some(agent), Some(user)) => (agent, user),
        (agent, user) => return agent.or(user).map(|document| document.text),
    };
    let (Some(agent_config), Some(mut config)) = (agent.config, user.config) else {
        return Some(format!("#include\n{}\n{}\n", agent.path, user.path));
    };
    let tags = client(&mut config).and_then(|client| client.get("tags").cloned());
    for (key, value) in agent_config.into_entries() {
        config.insert(key, value);
    }
    if let (Some(tags), Some(client)) = (tags.filter(|t| t.as_str() != Some("")), client(&mut config)) {
        client.insert("tags", tags);
    }
    // cloud-init's line, with its spelling.
    Some(format!("#cloud-config\n# WSL datasouce Merged agent.yaml and user_data\n{}", written(&config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(path: &str, text: &str) -> Option<Document> {
        let config = text.starts_with("#cloud-config").then(|| yaml::parse(path, text).unwrap());
        let config = config.and_then(|config| config.as_map().cloned());
        Some(Document { path: path.into(), text: text.into(), config })
    }

    #[test]
    fn agents_keys_replace_the_users_except_tags() {
        let user = "#cloud-config\npackages: [a]\nlandscape: {client: {tags: wsl, account_name: mine}}\n";
        let agent = "#cloud-config\nlandscape: {client: {account_name: theirs}}\nubuntu_pro: {token: t}\n";
        let merged = merged(document("/a", agent), document("/u", user)).unwrap();
        let value = yaml::parse("t", &merged).unwrap();
        let client = |key: &str| value.at(&["landscape", "client", key]).and_then(Value::text);
        assert_eq!((client("tags").as_deref(), client("account_name").as_deref()), (Some("wsl"), Some("theirs")));
        assert!(value.get("packages").is_some() && value.get("ubuntu_pro").is_some(), "{merged}");
    }

    #[test]
    fn includes_unmergeable_documents_and_keeps_single_one() {
        let (config, script) = ("#cloud-config\n{}\n", "#!/bin/sh\n");
        let both = merged(document("/a", config), document("/u", script));
        assert_eq!(both.as_deref(), Some("#include\n/a\n/u\n"));
        assert_eq!(merged(None, document("/u", script)).as_deref(), Some(script));
        assert_eq!(merged(document("/a", config), document("/u", "")).as_deref(), Some(config));
        assert_eq!(merged(None, None), None);
    }
}
