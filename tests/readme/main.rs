//! What the README and the manual pages say is what the program and the project's files say.

mod convert;
mod figures;
mod generated;
mod limits;
mod names;
mod pages;

use pages::{first_column, page, table};
use prepivot::base::problem::Problems;
use prepivot::document::{Taken, Value};
use prepivot::machine::Machine;
use prepivot::module::MODULES;
use prepivot::network::read::FORMATS;
use prepivot::network::render::RENDERERS;
use prepivot::root::{Root, Use};
use prepivot::source::{SOURCES, read_seed};
use std::collections::BTreeSet;

#[test]
fn every_link_leads_somewhere() {
    let mut count = 0;
    for page in pages::all() {
        for (text, target) in page.links() {
            count += 1;
            assert!(!target.starts_with("http"), "{}: {target}: not known to exist", page.path);
            assert_eq!(page.broken(target), None);
            // A manual page is named as man pages are: prepivot(8).
            if let Some(name) = target.rsplit('/').next().and_then(|n| n.strip_suffix(".md"))
                && text.contains('(')
            {
                let (name, section) = name.rsplit_once('.').expect("a section in the name");
                assert_eq!(text, format!("{name}({section})"), "{}", page.path);
            }
        }
    }
    assert!(count > 40, "{count} links");
}

#[test]
fn the_readme_has_every_manual_page() {
    let readme = page("README.md");
    let linked: BTreeSet<&str> = readme.section("## Manual").lines().filter_map(|l| l.split("](").nth(1)).collect();
    for manual in pages::manual() {
        assert!(linked.iter().any(|l| l.starts_with(&manual.path)), "{}", manual.path);
    }
}

/// tests/settings/list makes the list of cloud-init's source and documentation.
#[test]
fn each_setting_of_cloud_inits_sources_is_known() {
    let differences = page("initramfs/man/prepivot-differences.7.md");
    let mut count = 0;
    for line in include_str!("../settings/cloud-init-26.2.txt").lines() {
        let [name, key, _] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let source = SOURCES.iter().find(|source| source.name == name).expect(line);
        let is_read = source.settings.iter().any(|(known, _)| *known == key);
        let is_stated = source.unused.contains(&key) && differences.text.contains(&format!("`{key}`"));
        assert!(is_read != is_stated, "{line}: neither read, nor stated as without effect");
        count += 1;
    }
    assert!(count > 100, "{count} settings");
}

#[test]
fn manual_pages_have_their_usual_parts() {
    for page in pages::manual() {
        let title = page.text.lines().next().unwrap_or_default();
        let name = page.path.rsplit('/').next().unwrap().trim_end_matches(".md");
        let (name, section) = name.rsplit_once('.').unwrap();
        assert_eq!(title, format!("# {name}({section})"), "{}", page.path);
        assert!(page.section("## NAME").trim().contains(" - ") && page.section("## NAME").contains(name));
        assert!(!page.section("## DESCRIPTION").trim().is_empty());
        assert!(page.section("## SEE ALSO").contains("]("), "{}", page.path);
        // What man shows everywhere, whatever the locale.
        let odd = page.text.lines().find(|l| !l.is_ascii());
        assert_eq!(odd, None, "{}: only ASCII", page.path);
    }
}

fn sources() -> BTreeSet<String> {
    SOURCES.iter().filter(|s| s.is_read()).map(|s| s.name.to_owned()).collect()
}

#[test]
fn tables_list_exactly_the_read_datasources() {
    assert_eq!(
        first_column(page("README.md").section("## What is supported")),
        sources(),
        "README.md: the datasources"
    );
    let undescribed: Vec<&str> = SOURCES.iter().filter(|s| s.is_read() && s.docs.is_empty()).map(|s| s.name).collect();
    assert_eq!(undescribed, [""; 0], "no `docs` for prepivot-datasources(7)");
}

#[test]
fn table_lists_every_services_requests() {
    // Of these a service is only an address that a seed names.
    let seeds = ["NoCloud", "OVF"];
    let services = SOURCES.iter().filter(|s| s.service.is_some() && !seeds.contains(&s.name));
    let code: BTreeSet<String> = services.map(|s| s.name.to_owned()).collect();
    let page = page("initramfs/man/prepivot-datasources.7.md");
    let section = page.section("## REQUESTS OF A FIRST BOOT");
    assert_eq!(first_column(section), code, "prepivot-datasources(7): REQUESTS OF A FIRST BOOT");
    for row in table(section) {
        let count = |cell: usize| row[cell].parse::<u32>().unwrap_or_else(|e| panic!("{}: {e}: {}", row[0], row[cell]));
        // cloud-init does not read every source that is here.
        assert!(row[2] == "-" || count(1) <= count(2), "{}: more than cloud-init", row[0]);
        assert!(count(1) > 0, "{}", row[0]);
    }
}

#[test]
fn table_lists_exactly_the_modules() {
    let code: BTreeSet<String> = MODULES.iter().map(|m| m.name.to_owned()).collect();
    assert_eq!(first_column(page("initramfs/man/prepivot-modules.7.md").section("## MODULES")), code);
}

#[test]
fn table_lists_every_modules_halves() {
    let page = page("initramfs/man/prepivot-modules.7.md");
    for row in table(page.section("## MODULES")) {
        for name in pages::names(&row[0]) {
            let module = MODULES.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(module.before_pivot.is_some(), !row[1].is_empty(), "{name}: before the pivot");
            // What a module only writes, another may run: that is in parentheses.
            let live = !row[2].is_empty() && !row[2].starts_with('(');
            assert_eq!(module.running.is_some(), live, "{name}: in the real root");
        }
    }
}

#[test]
fn default_features_are_all_parts() {
    let manifest = pages::text("Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").expect("the features");
    let lines = features.lines().take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    let (default, parts): (Vec<_>, Vec<_>) = lines.partition(|(name, _)| *name == "default");
    let parts = parts.into_iter().map(|(name, _)| name).filter(|name| *name != "no-backtrace");
    let default: BTreeSet<&str> = default[0].1.split('"').skip(1).step_by(2).collect();
    assert_eq!(default, parts.collect());
}

/// All files below a folder, with their texts.
fn files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(pages::project().join(folder)).expect("a folder").flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&path)),
            _ => found.push((path.clone(), pages::text(&path))),
        }
    }
    found
}

#[test]
fn table_lists_every_datasource_file() {
    let declares =
        |(path, text): &(String, String)| text.contains("pub static SOURCE: Source") && path != "src/source/example.rs";
    let declared: Vec<String> = files("src/source").into_iter().filter(declares).map(|(path, _)| path).collect();
    assert_eq!(declared.len(), SOURCES.len(), "{declared:?}");
}

#[test]
fn every_service_has_a_case_in_namespaces() {
    let cases = [files("tests/net/cases"), files("tests/net/shared")].concat();
    for source in SOURCES.iter().filter(|s| s.service.is_some()) {
        let named = |text: &String| {
            text.contains(&format!("SOURCE = \"{}\"", source.name))
                || text.lines().any(|l| l.contains("source = ") && l.contains(source.name))
        };
        assert!(cases.iter().any(|(_, text)| named(text)), "no case below tests/net/cases asks {}", source.name);
    }
}

#[test]
fn every_layout_of_files_has_a_whole_case() {
    let mut seen = BTreeSet::new();
    for case in std::fs::read_dir(pages::project().join("tests/cases")).expect("a folder").flatten() {
        // The tree of a case has the facts of its machine, where it has any.
        let tree = Some(case.path().join("root")).filter(|tree| tree.exists()).unwrap_or_else(|| case.path());
        let (machine, root) = (Machine::read(&tree), Root::open(&tree, Use::Plan).expect("a tree"));
        let seed = case.path().join("seed");
        let found = read_seed(&machine, &root, &Value::Null, &seed, Taken::keeping(), &Problems::new());
        seen.insert(found.unwrap_or_else(|e| panic!("{}: {e}", seed.display())).instance.source);
    }
    for source in SOURCES.iter().filter(|s| s.seed.is_some()) {
        assert!(seen.contains(source.name), "no case in tests/cases has the files of {}", source.name);
    }
}

#[test]
fn net_converts_help_lists_formats_and_stacks() {
    let program = prepivot::cli::command();
    let devel = program.commands.iter().find(|c| c.name == "devel").expect("devel");
    let tool = devel.command.commands.iter().find(|c| c.name == "net-convert").expect("net-convert");
    let words = |long: &str| {
        let option = tool.command.flags.iter().find(|f| f.long == long).expect("the option");
        pages::names(&option.description.split_once(": ").expect("the list").1.replace(" or ", ", "))
    };
    assert_eq!(words("--kind"), FORMATS.iter().map(|f| f.name.to_owned()).collect());
    assert_eq!(words("--output-kind"), RENDERERS.iter().map(|r| r.name.to_owned()).collect());
}

#[test]
fn every_datasource_of_cloud_init_is_read() {
    let unread: Vec<&str> = SOURCES.iter().filter(|s| !s.is_read() && s.name != "None").map(|s| s.name).collect();
    assert_eq!(unread, [""; 0]);
}

#[test]
fn no_module_of_cloud_init_is_missing() {
    let missing: Vec<&str> =
        MODULES.iter().filter(|m| m.before_pivot.is_none() && m.running.is_none()).map(|m| m.name).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_network_stack_is_in_the_tables() {
    let code: BTreeSet<String> = RENDERERS.iter().map(|r| r.name.to_owned()).collect();
    let readme = page("README.md");
    let (_, stacks) = readme.section("## What is supported").split_once("Every network input").expect("the stacks");
    assert_eq!(first_column(stacks), code);
    let manual = page("initramfs/man/prepivot-network.7.md");
    let kinds = ["RHEL", "SUSE"];
    let listed: BTreeSet<String> = first_column(manual.section("## OUTPUT")).into_iter().collect();
    assert_eq!(listed.into_iter().filter(|n| !kinds.contains(&n.as_str())).collect::<BTreeSet<_>>(), code);
}
