//! Documents as they came, before anything parses them: what a trust policy measures and checks.
//!
//! The doors through which documents come note each one: the files of drives and folders, the HTTP client, and the few sources that
//! have another way to the platform. Without a policy nothing is kept.

use super::Bytes;
use crate::base::digest::{Algorithm, digest};
use crate::base::hex;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a document is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstancePart {
    Metadata,
    Network,
    VendorData,
    VendorData2,
    /// User-data and its signature, which an instance has as they came.
    UserData,
}

/// The ends of the names of documents that are not metadata, with spaces between them.
const NAMES: [(InstancePart, &str); 4] = [
    (InstancePart::Network, "network-config network_data.json cloud-init.network-config user.network-config"),
    (
        InstancePart::VendorData,
        "vendor-data vendordata vendor_data.json vendor_data/cloud-init cloud-init.vendor-data user.vendor-data",
    ),
    (InstancePart::VendorData2, "vendor_data2.json"),
    (
        InstancePart::UserData,
        "user-data userdata user_data user_data/cloud-init cloud-init.user-data user.user-data user-data.sig user_data.sig \
         user.data user-data.txt deltacloud-user-data.txt",
    ),
];
/// The folder whose documents are metadata whatever their names: a service chooses these.
const TREE: &str = "meta-data";
/// The first line of what stands for several documents.
const LIST: &str = "#prepivot-documents\n";

impl InstancePart {
    /// What a document is part of by its name: a path, or a URL with its query. A name that is not known is metadata's, so that
    /// nothing is left out which becomes part of an instance.
    fn named(name: &str) -> InstancePart {
        let is_end = |end: &str| {
            let folder = name.strip_suffix(end).filter(|folder| folder.is_empty() || folder.ends_with('/'));
            folder.is_some_and(|folder| !folder.split('/').any(|part| part == TREE))
        };
        NAMES.iter().find(|(_, ends)| ends.split(' ').any(is_end)).map_or(InstancePart::Metadata, |(part, _)| *part)
    }
}

/// What an instance is made of, as it came: the bytes of each part of [`Raw::PARTS`]. None: there is no such document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Raw(pub [Option<Bytes>; 4]);

impl Raw {
    /// The parts in their order, with the name of the document in a trust policy and that of its field in the cache.
    pub const PARTS: [(InstancePart, &'static str, &'static str); 4] = [
        (InstancePart::Metadata, "metadata", "metadata"),
        (InstancePart::Network, "network-config", "network"),
        (InstancePart::VendorData, "vendor-data", "vendor_data"),
        (InstancePart::VendorData2, "vendor-data2", "vendor_data2"),
    ];
}

/// A document that was taken: its part, its name and its bytes.
type One = (InstancePart, String, Bytes);

/// The documents that were taken so far, shared by all doors of one search. By default it keeps none.
#[derive(Debug, Clone, Default)]
pub struct Taken(Option<Arc<Mutex<Vec<One>>>>);

/// Files with the same content are equal, whoever notes them.
impl PartialEq for Taken {
    fn eq(&self, _: &Taken) -> bool {
        true
    }
}

impl Eq for Taken {}

impl Taken {
    /// One that keeps documents.
    pub fn keeping() -> Taken {
        Taken(Some(Arc::default()))
    }

    /// One of its own, which begins with the same documents.
    pub fn fork(&self) -> Taken {
        Taken(self.0.as_ref().map(|all| Arc::new(Mutex::new(locked(all).clone()))))
    }

    /// Forgets all documents: another source is read.
    pub fn clear(&self) {
        if let Some(all) = &self.0 {
            locked(all).clear();
        }
    }

    /// Forgets the documents of a part, in whose place another document is used.
    pub fn forget(&self, part: InstancePart) {
        if let Some(all) = &self.0 {
            locked(all).retain(|(of, ..)| *of != part);
        }
    }

    /// Notes a document by its name, which also tells its part.
    pub fn add(&self, name: &str, bytes: &[u8]) {
        self.note(None, name, || bytes.into());
    }

    /// The same for a name that the document's owner chooses.
    pub fn add_to(&self, part: InstancePart, name: &str, bytes: &[u8]) {
        self.note(Some(part), name, || bytes.into());
    }

    /// The same without a copy. A name that is not chosen by the document's owner tells the part.
    pub fn share(&self, part: Option<InstancePart>, name: &str, bytes: &Bytes) {
        self.note(part, name, || bytes.clone());
    }

    fn note(&self, part: Option<InstancePart>, name: &str, bytes: impl FnOnce() -> Bytes) {
        let Some(all) = &self.0 else { return };
        let part = part.unwrap_or_else(|| InstancePart::named(name));
        if part == InstancePart::UserData {
            return;
        }
        let mut all = locked(all);
        let one = (part, name.to_owned(), bytes());
        // In order, and each once, however often and in whatever order they are read.
        if let Err(at) = all.binary_search(&one) {
            all.insert(at, one);
        }
    }

    /// The documents of each part. None if none are kept.
    pub fn raw(&self) -> Option<Raw> {
        let all = locked(self.0.as_ref()?);
        let of = |part| {
            let own: Vec<&One> = all.iter().filter(|(of, ..)| *of == part).collect();
            match own.as_slice() {
                [] => None,
                [(.., bytes)] if !bytes.starts_with(LIST.as_bytes()) => Some(bytes.clone()),
                own => Some(listed(own)),
            }
        };
        Some(Raw(Raw::PARTS.map(|(part, ..)| of(part))))
    }
}

fn locked(all: &Mutex<Vec<One>>) -> MutexGuard<'_, Vec<One>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What stands for several documents: after a first line of its own their digests and names, in order of the names, as sha256sum
/// prints them. A document alone that begins with that line is listed, too, so that nothing else has the same bytes.
fn listed(all: &[&One]) -> Bytes {
    let mut text = LIST.to_owned();
    for (_, name, bytes) in all {
        text += &hex::encode(&digest(Algorithm::Sha256, bytes));
        text += "  ";
        // A line break in a name would begin another line.
        text += &name.replace(|c: char| c.is_control(), "?");
        text.push('\n');
    }
    text.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_part_and_are_metadatas_otherwise() {
        for (name, part) in [
            ("openstack/latest/meta_data.json", InstancePart::Metadata),
            ("openstack/latest/network_data.json", InstancePart::Network),
            ("network-config", InstancePart::Network),
            ("seed/user-data", InstancePart::UserData),
            ("1.0/config/cloud-init.vendor-data", InstancePart::VendorData),
            ("vendor_data/cloud-init", InstancePart::VendorData),
            ("openstack/latest/vendor_data2.json", InstancePart::VendorData2),
            // Names that a service or a document chooses.
            ("latest/meta-data/user-data", InstancePart::Metadata),
            ("latest/meta-data/a/network-config", InstancePart::Metadata),
            ("user-data?x=meta-data", InstancePart::Metadata),
            ("not-user-data", InstancePart::Metadata),
            ("user-data/", InstancePart::Metadata),
            ("", InstancePart::Metadata),
        ] {
            assert_eq!(InstancePart::named(name), part, "{name}");
        }
    }

    #[test]
    fn one_document_is_itself_and_several_are_listed() {
        let (taken, none) = (Taken::keeping(), Taken::default());
        let add = |name: &str, text: &str| taken.add(name, text.as_bytes());
        none.add("meta-data", b"x");
        assert_eq!((none.raw(), taken.raw()), (None, Some(Raw::default())));
        add("meta-data", "a: 1\n");
        add("meta-data", "a: 1\n");
        add("user-data", "u");
        let alone = taken.raw().unwrap();
        assert_eq!(alone.0, [Some(b"a: 1\n"[..].into()), None, None, None]);
        let other = taken.fork();
        other.add("b\nc", b"x");
        let sum = |text: &str| hex::encode(&digest(Algorithm::Sha256, text.as_bytes()));
        let list = format!("#prepivot-documents\n{}  b?c\n{}  meta-data\n", sum("x"), sum("a: 1\n"));
        assert_eq!(other.raw().unwrap().0[0].as_deref(), Some(list.as_bytes()));
        assert_eq!(taken.raw(), Some(alone), "the other one is apart");
        // A document with the bytes of a list is not that list.
        taken.clear();
        add("meta-data", &list);
        let raw = taken.raw().unwrap().0[0].clone().unwrap();
        assert_eq!(&*raw, format!("#prepivot-documents\n{}  meta-data\n", sum(&list)).as_bytes());
    }
}
