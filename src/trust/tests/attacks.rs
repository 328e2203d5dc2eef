//! Documents that one reader takes for something else than another: what the verifier sees must be what is used.

use super::*;

const EVIL: &str = "#cloud-config\nhostname: evil\n";
const NOT_SIGNED: &str = "is not signed";
const FORM: &str = "another form";

/// The envelope of the lab's document, and its signature in armor.
fn good(lab: &Lab) -> (String, String) {
    let good = String::from_utf8(lab.signed(DOCUMENT)).unwrap();
    let (head, _) = good.split_once("\n\n").unwrap();
    let armor = format!("{}\n", head.strip_prefix(envelope::FIRST).unwrap());
    (good, armor)
}

#[test]
fn refuses_ambiguous_mime_around_a_signature() {
    let Some(lab) = Lab::with_key("trust-mime", "ed25519") else { return };
    let (good, armor) = good(&lab);
    let (cloud, mixed) = ("Content-Type: text/cloud-config", "Content-Type: multipart/mixed; boundary=\"b\"");
    let part = |body: &str| format!("--b\n{cloud}\n\n{body}\n");
    let whole = |headers: &str, parts: &[&str]| format!("{headers}\n\n{}", parts.concat());
    let end = "--b--\n";
    let (own, other) = (part(&good), part(EVIL));
    for (attack, user_data) in [
        ("a Content-Type twice, the first of a document", whole(&format!("{cloud}\n{mixed}"), &[&own, &other, end])),
        ("a Content-Type twice, the first of a multipart", whole(&format!("{mixed}\n{cloud}"), &[&own, &other, end])),
        ("a Content-Type twice in other letters", whole(&format!("{mixed}\nCONTENT-TYPE: text/plain"), &[&own, end])),
        (
            "two boundary parameters",
            whole(&format!("{mixed}; boundary=\"c\""), &[&own, end, &other.replace("--b", "--c"), "--c--\n"]),
        ),
        ("a boundary parameter in pieces", whole("Content-Type: multipart/mixed; boundary*0=b; boundary*1=c", &[&own])),
        ("a boundary that ends twice", whole(mixed, &[&own, end, &other, end])),
        ("a boundary within another", whole(mixed, &[&own, &other.replace("--b\n", "--bb\n"), end])),
        ("a boundary with white space after it", whole(mixed, &[&own, &other.replace("--b\n", "--b \t\n"), end])),
        ("no boundary at the end", whole(mixed, &[&own, &other])),
        ("a folded header around the first line", format!("X-Note: a\n {}{armor}\n{EVIL}", envelope::FIRST)),
        ("a folded header that goes on with the type", whole("Content-Type:\n multipart/mixed;\n boundary=b", &[&own])),
        (
            "a Content-Transfer-Encoding twice",
            whole(
                &format!("{cloud}\nContent-Transfer-Encoding: 7bit\nContent-Transfer-Encoding: base64"),
                &[&base64::encode(good.as_bytes())],
            ),
        ),
        ("a header without a colon before it", whole("Content-Type text/cloud-config", &[&good])),
        ("a line of a mailbox before it", whole("From a Thu Jan  1 00:00:00 1970", &[&good])),
        ("signed parts with one that is not signed", whole(mixed, &[&own, &own, &other, end])),
        ("a signed part in a multipart of its own", whole(mixed, &[&part(&whole(mixed, &[&own, end])), &other, end])),
    ] {
        lab.refuses(attack, user_data.as_bytes(), NOT_SIGNED);
    }
}

#[test]
fn refuses_ambiguous_heads_of_an_envelope() {
    let Some(lab) = Lab::with_key("trust-heads", "ed25519") else { return };
    let (good, armor) = good(&lab);
    let first = envelope::FIRST;
    let changed = |was: &str, is: &str| good.replacen(was, is, 1);
    let evil = |head: &str| format!("{head}\n{EVIL}");
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (attack, user_data, reason) in [
        ("a folded line after the first", changed("\n-----BEGIN", "\n -----BEGIN"), FORM),
        ("a line without a colon before the signature", changed("\n-----BEGIN", "\nnote\n-----BEGIN"), FORM),
        ("a header in the armor", changed("SIGNATURE-----\n", "SIGNATURE-----\nComment: x\n"), FORM),
        ("a folded line in the armor", changed("SIGNATURE-----\n", "SIGNATURE-----\n "), FORM),
        ("the first line twice", changed(first, &format!("{first}{first}")), FORM),
        ("a signature in a signature", evil(&format!("{first}{}\n{armor}", sshsig::BEGIN)), FORM),
        ("the end of another armor", changed(sshsig::END, "-----END CMS-----"), FORM),
        ("a signature without an end", changed(&format!("{}\n", sshsig::END), ""), FORM),
        ("an empty line in the armor", changed("SIGNATURE-----\n", "SIGNATURE-----\n\n"), FORM),
        ("a line of spaces for the empty one", good.replacen("\n\n", "\n \n", 1), FORM),
        ("the document in the armor", evil(&format!("{first}{}\n{DOCUMENT}{}\n", sshsig::BEGIN, sshsig::END)), FORM),
        ("a NUL in the armor", changed("SIGNATURE-----\n", "SIGNATURE-----\n\0"), FORM),
        ("a space after the first line", changed(first, "#prepivot-signed \n"), NOT_SIGNED),
        ("the first line in other letters", changed(first, "#Prepivot-Signed\n"), NOT_SIGNED),
        ("a carriage return after the first line", changed(first, "#prepivot-signed\r\n"), NOT_SIGNED),
        ("a NUL before it", format!("\0{good}"), NOT_SIGNED),
        ("an empty line before it", format!("\n{good}"), NOT_SIGNED),
    ] {
        lab.refuses(attack, user_data.as_bytes(), reason);
    }
    lab.refuses("as UTF-16", &utf16, NOT_SIGNED);
    // The second of two signatures may be anyone's, but not anything.
    lab.refuses("a second signature of another form", changed("\n\n", "\n-----BEGIN X-----\n\n").as_bytes(), FORM);
}

/// A lab whose policy has the certificates `names`, with a key each.
fn with_certificates(name: &str, names: &[&str]) -> Option<Lab> {
    let lab = Lab::with_key(name, "ed25519")?;
    for name in names {
        certificate(&lab, name, &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"], name)?;
    }
    Some(lab)
}

/// Makes a certificate by openssl, and adds it to the policy.
fn certificate(lab: &Lab, name: &str, key: &[&str], of: &str) -> Option<()> {
    let (key_file, file) = (format!("{of}.key"), format!("{name}.crt"));
    let way = if key.is_empty() { ["-key", &key_file] } else { ["-keyout", &key_file] };
    let subject = format!("/CN={name}");
    let request = ["req", "-x509", "-nodes", "-subj", &subject, "-out", &file];
    run("openssl", &[&request[..], &way, key].concat(), &lab.dir).then_some(())?;
    lab.write(&file, &std::fs::read_to_string(lab.dir.0.join(&file)).unwrap());
    Some(())
}

/// The envelope of a text that all of `names` have signed, in one CMS.
fn signed_by_all(lab: &Lab, names: &[&str], text: &str, options: &[&str]) -> String {
    lab.dir.write("message", text);
    let files: Vec<[String; 2]> = names.iter().map(|name| [format!("{name}.crt"), format!("{name}.key")]).collect();
    let signers = files.iter().flat_map(|[file, key]| ["-signer", file, "-inkey", key]);
    let words = ["cms", "-sign", "-in", "message", "-outform", "PEM", "-out", "message.cms"];
    let words: Vec<&str> = words.into_iter().chain(signers).chain(options.iter().copied()).collect();
    assert!(run("openssl", &words, &lab.dir));
    let signature = std::fs::read_to_string(lab.dir.0.join("message.cms")).unwrap();
    format!("{}{signature}\n{text}", envelope::FIRST)
}

fn print_of(lab: &Lab, name: &str) -> String {
    let all = lab.read().certificates;
    let own = all.iter().find(|own| own.name == format!("{name}.crt")).unwrap();
    allowed::fingerprint(&own.der)
}

/// One CMS may have several signers, in an order that openssl chooses: what is accepted does not depend on it.
#[test]
fn one_accepted_signer_of_a_cms_is_enough() {
    let Some(lab) = with_certificates("trust-signers", &["one", "two", "three"]) else { return };
    let text = format!("{}kind: user-data\n\n{DOCUMENT}", envelope::STATEMENT);
    let both = signed_by_all(&lab, &["one", "two"], &text, &["-binary"]);
    assert_eq!(lab.judge(both.as_bytes()).as_deref(), Ok(DOCUMENT));
    let changed = both.replace("hostname", "hostnamf");
    lab.refuses("two signers of another document", changed.as_bytes(), "is not that of these bytes");
    // Whichever of them comes first: the other one has signed, too.
    for revoked in ["one", "two"] {
        lab.write("revoked_keys", &print_of(&lab, revoked));
        assert_eq!(lab.judge(both.as_bytes()).as_deref(), Ok(DOCUMENT), "{revoked} is revoked");
        let alone = signed_by_all(&lab, &[revoked], &text, &["-binary"]);
        lab.refuses("one that is revoked", alone.as_bytes(), "that is revoked");
    }
    lab.write("revoked_keys", &format!("{}\n{}\n", print_of(&lab, "one"), print_of(&lab, "two")));
    lab.refuses("two that are revoked", both.as_bytes(), "that is revoked");
    // One that the policy does not have takes nothing away, and adds nothing.
    lab.write("revoked_keys", &print_of(&lab, "two"));
    let unknown = signed_by_all(&lab, &["two", "three"], &text, &["-binary"]);
    std::fs::remove_file(lab.dir.0.join(FOLDER).join("three.crt")).unwrap();
    lab.refuses("one that is revoked, and one that is unknown", unknown.as_bytes(), "that is revoked");
    lab.write("revoked_keys", "");
    assert_eq!(lab.judge(unknown.as_bytes()).as_deref(), Ok(DOCUMENT));
    std::fs::remove_file(lab.dir.0.join(FOLDER).join("two.crt")).unwrap();
    lab.refuses("two that are unknown", unknown.as_bytes(), "is not that of these bytes");
}

#[test]
fn a_revoked_certificates_key_is_refused_in_others() {
    let Some(lab) = with_certificates("trust-renewed", &["old"]) else { return };
    // Before and after it in the order of names.
    for renewed in ["new", "older"] {
        let Some(()) = certificate(&lab, renewed, &[], "old") else { return };
    }
    let text = format!("{}kind: user-data\n\n{DOCUMENT}", envelope::STATEMENT);
    let signed = signed_by_all(&lab, &["old"], &text, &["-binary"]);
    assert!(lab.judge(signed.as_bytes()).is_ok());
    for revoked in ["new", "old", "older"] {
        lab.write("revoked_keys", &print_of(&lab, revoked));
        lab.refuses(revoked, signed.as_bytes(), "that is revoked");
    }
}

#[test]
fn refuses_cms_signatures_of_other_bytes() {
    let Some(lab) = with_certificates("trust-other-bytes", &["one"]) else { return };
    let text = format!("{}kind: user-data\n\n{DOCUMENT}", envelope::STATEMENT);
    // S/MIME's line ends, and its header.
    for options in [&[][..], &["-text"], &["-text", "-noattr"]] {
        let signed = signed_by_all(&lab, &["one"], &text, options);
        lab.refuses("that of a message with other line ends", signed.as_bytes(), "is not that of these bytes");
    }
    // The signature of the signed attributes, without them, is one of their own bytes: those of a set, which no document is.
    let signed = signed_by_all(&lab, &["one"], &text, &["-binary"]);
    let blob = envelope::Envelope::parse(signed.as_bytes()).unwrap().unwrap().signatures[0].1.clone();
    let (attributes, blob) = without_attributes(&blob);
    let all = lab.read().certificates;
    assert_eq!(cms::signers(&blob, &attributes, &all).unwrap().len(), 1, "the attack gets as far as this");
    let armor = format!("-----BEGIN CMS-----\n{}\n-----END CMS-----\n\n", base64::encode(&blob));
    let user_data = [envelope::FIRST.as_bytes(), armor.as_bytes(), &attributes].concat();
    lab.refuses("its attributes as the document", &user_data, "needs a statement");
}

/// The signed attributes of a CMS with one signer, in the bytes that are signed, and a CMS with that signature and without them.
fn without_attributes(blob: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let element = |tag: u8, parts: &[&[u8]]| {
        let content = parts.concat();
        [&[tag, 0x82][..], &u16::try_from(content.len()).unwrap().to_be_bytes(), &content].concat()
    };
    let length = |at: usize| match blob[at + 1] {
        0x81 => 3 + usize::from(blob[at + 2]),
        short => 2 + usize::from(short),
    };
    let is_last = |at: &usize| blob[*at] == 0x04 && blob[at + 2] == 0x30 && at + length(*at) == blob.len();
    let signature = (0..blob.len() - 2).rev().find(is_last).unwrap();
    // Between them is the signature's algorithm.
    let are_attributes = |at: &usize| {
        let after = at + length(*at);
        blob[*at] == 0xa0 && blob.get(after) == Some(&0x30) && after + length(after) == signature
    };
    let at = (0..signature).find(are_attributes).unwrap();
    let mut attributes = blob[at..at + length(at)].to_vec();
    attributes[0] = 0x31;
    let version = &[0x02, 0x01, 0x01][..];
    let (signed_data, data) =
        (b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02", b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01");
    let sha256 = element(0x30, &[b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01"]);
    let signer = element(0x30, &[version, &element(0x30, &[]), &sha256, &element(0x30, &[]), &blob[signature..]]);
    let content =
        [&element(0x31, &[&sha256]), &element(0x30, &[data]), &element(0x31, &[&signer])].map(Vec::as_slice).concat();
    let whole = element(0x30, &[signed_data, &element(0xa0, &[&element(0x30, &[version, &content])])]);
    (attributes, whole)
}
