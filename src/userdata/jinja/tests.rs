use super::*;
use crate::document::yaml;

const DATA: &str = r#"
base64_encoded_keys: [ds/meta_data/secret]
v1: {instance_id: i-1, cloud-name: test, region: null, public_ssh_keys: [a, b], n: 1, ok: true}
ds: {meta_data: {a-b: x, list: [1, 2], secret: aGk=, "v1.0": {"k/e:y": 1}}}
"#;

fn rendered(template: &str) -> String {
    render(template, &yaml::parse("data", DATA).unwrap()).map_or_else(|e| e.to_string(), |r| r.text)
}

#[test]
fn what_documents_use() {
    for (template, text) in [
        ("{{ v1.instance_id }}\n", "i-1\n"),
        ("{{ instance_id }} {{ cloud_name }} {{ v1['cloud-name'] }}", "i-1 test test"),
        ("{{ ds.meta_data.a_b }} {{ ds.meta_data['a-b'] }} {{ ds.meta_data.list }}", "x x [1, 2]"),
        ("{{ ds.meta_data.v1_0.k_e_y }} {{ ds.meta_data.secret }}", "1 hi"),
        ("{{ v1.public_ssh_keys }} {{ region }} {{ ok }} {{ {'a': none} }}", "['a', 'b'] None True {'a': None}"),
        ("{% if v1.region == 'x' -%}\na\n{% elif n == 1 %}\nb\n{% else %}\nc\n{% endif %}\n", "b\n\n"),
        ("{% for k in v1.public_ssh_keys %}\n- {{ k }}{{ loop.index }}\n{% endfor %}\nend\n", "- a1\n- b2\nend\n"),
        ("{% for k, v in ds.meta_data.items() %}{{ k }} {% endfor %}", "a-b a_b list secret v1.0 v1_0 "),
        ("{% set x = 'a' ~ 1 %}{{ x | upper }}{# no #}{% raw %}{{ x }}{% endraw %}", "A1{{ x }}"),
        ("{{ nothing | default('d') }} {{ region | default('e', true) }} {{ v1.nope | d }}", "d e "),
        ("{{ 'x' if nothing is defined else 'y' }}{{ v1.n is defined }}{{ q is undefined }}", "yTrueTrue"),
        ("{% if nothing %}a{% else %}b{% endif %}{% for i in nothing %}c{% endfor %}", "b"),
        ("{{ v1.public_ssh_keys | join(',') }} {{ 'a' in v1.public_ssh_keys }} {{ 'abc'[1:] }}", "a,b True bc"),
        ("{{ 'a,b'.split(',') | last }} {{ ' x '.strip() }} {{ 'aXb'.replace('X', '-') | length }}", "b x 3"),
        ("{{ ds.get('x', 'none') }} {{ ds.keys() | list }}", "none ['meta_data']"),
        ("a\n\n", "a\n\n"),
    ] {
        assert_eq!(rendered(template), text, "{template}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let data = yaml::parse("data", DATA).unwrap();
    let result = render("{{ v1.nothing_here }} {{ top }} {{ ds['a']}} {{ 'x' ~ other }}", &data).unwrap();
    assert_eq!(
        result.text,
        "CI_MISSING_JINJA_VAR/nothing_here CI_MISSING_JINJA_VAR/top CI_MISSING_JINJA_VAR/a xCI_MISSING_JINJA_VAR/other"
    );
    assert_eq!(result.missing, ["nothing_here", "top", "a", "other"]);
}

#[test]
fn wrong_templates_fail_with_their_line() {
    for (template, error) in [
        ("\n{{ \n", "line 3: a tag that does not end"),
        ("{{ v1.nothing.deeper }}", "line 2: nothing is undefined"),
        ("{{ a - b }}", "line 2: a is undefined, and a-b is a subtraction; did you mean a_b?"),
        ("a\n{% include 'x' %}", "line 3: include: there are no other templates"),
        ("{{ x.__class__.__mro__ }}", "line 2: x is undefined"),
        ("{{ ''.__class__.__mro__ }}", "line 2: __class__ is undefined"),
        ("{% for i in 1 %}{% endfor %}", "line 2: an integer is not iterable"),
        ("{% if 1 %}\n{% for x in y %}\n", "line 3: the end of the template where else or endfor is expected"),
        ("{{ 'geheim' 5 }}", "line 2: a number where }} is expected"),
        ("{{ 1\n | nope }}", "line 2: there is no filter nope"),
        ("{{ 9223372036854775807 + 1 }}", "line 2: a number out of range"),
        ("{{ range(1, 2, 0) }}", "line 2: range: expected one to three integers, the third not 0"),
    ] {
        assert_eq!(rendered(template), format!("the template fails on {error}"), "{template}");
    }
}

/// A bound stops each of these, and says which: the values' memory, the steps, the nesting, the output.
#[test]
fn hostile_templates_end() {
    let doubling = "{% set ns = namespace(x=@) %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
    for (template, bound) in [
        (
            "{% for i in range(99999) %}{% for j in v1.public_ssh_keys %}{% for j in v1.public_ssh_keys %}{% for j in v1.public_ssh_keys %}{{ j }}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
            "too many steps",
        ),
        ("{% for i in range(10000) %}{{ 'aaaaaaaaaa' * 100000 }}{% endfor %}", "its values take more than"),
        ("{{ 'a' * 9223372036854775807 }}", "its values take more than"),
        ("{{ [1] * 9223372036854775807 }}", "its values take more than"),
        ("{{ range(100000000000) }}", "range: more than"),
        (&doubling.replace('@', "'abc'"), "its values take more than"),
        (&doubling.replace('@', "[1]"), "its values take more than"),
        (&"{% set x = x ~ x %}".repeat(101), "its values take more than"),
        (
            &("{% set x = 'ab' %}".to_owned() + &"{% set x %}{{ x }}{{ x }}{% endset %}".repeat(40)),
            "its values take more than",
        ),
        (
            &("{% set x = 'ab' %}".to_owned() + &"{% set x = x.replace('a', x) %}".repeat(40)),
            "its values take more than",
        ),
        (&("{% set x = 'ab' %}".to_owned() + &"{% set x = '%s%s' % (x, x) %}".repeat(40)), "its values take more than"),
        (
            &("{% set x = ['ab'] %}".to_owned() + &"{% set x = [x, x] %}".repeat(60) + "{{ x }}"),
            "its values take more than",
        ),
        (
            &("{% set x = 1 %}".to_owned() + &"{% set x = [x, x] %}".repeat(60) + "{{ x == [x] }}{{ x | tojson }}"),
            "too many steps",
        ),
        ("{% set x = [] %}{% do x.append(x) %}{{ x }}", "nested too deep"),
        (
            "{% set x = [] %}{% set y = [] %}{% do x.append(y) %}{% do y.append(x) %}{{ x == y }}{{ x | tojson }}",
            "nested too deep",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nests deeper"),
        ("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "nests deeper"),
        (&format!("{}x{}", "{% if 1 %}".repeat(5000), "{% endif %}".repeat(5000)), "nests deeper"),
        (&format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(300)), "nests deeper"),
        (&format!("{{{{ {}1 }}}}", "- ".repeat(4000)), "nests deeper"),
        (&format!("{{{{ {} }}}}", "(".repeat(50_000)), "nests deeper"),
        (&format!("{{{{ {} }}}}", "[".repeat(50_000)), "nests deeper"),
        (&format!("{{{{ {}1 }}}}", "not ".repeat(50_000)), "nests deeper"),
        (&"{{ a }}".repeat(200_000), "expressions and tags"),
        (&format!("{{{{ [{}] }}}}", "1,".repeat(200_000)), "expressions and tags"),
        (
            "{% for i in range(100000) %}{{ v1.public_ssh_keys }}{{ 'x' * 200 }}{% endfor %}",
            "its values take more than",
        ),
        ("{{ '%99999s' % 1 }}", "a field wider than"),
        ("{{ '{:99999}'.format(1) }}", "a field wider than"),
        (
            "{% set l = [] %}{% for i in range(99999) %}{% do l.insert(0, i) %}{% endfor %}{{ l.sort() }}",
            "too many steps",
        ),
    ] {
        let result = rendered(template);
        let named = result.starts_with("the template fails") && result.contains(bound);
        assert!(named, "{}: {}", &template[..80.min(template.len())], &result[..200.min(result.len())]);
    }
    assert_eq!(rendered(&format!("{{{{ 1{} }}}}", "+1".repeat(20_000))), "20001");
    // A chain of lists that is longer than any stack is taken apart again.
    let chain = "{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    assert_eq!(rendered(chain), "");
}

/// Templates of one source share their steps.
#[test]
fn many_templates_together_end() {
    let fuel = Fuel::default();
    let data = Value::Null;
    let slow = "{% for i in range(9999) %}{% for j in range(20) %}{% endfor %}{% endfor %}";
    let results: Vec<bool> = (0..100).map(|_| render_with(slow, &data, &fuel).is_ok()).collect();
    assert!(results[0] && !results[99]);
}

#[test]
fn random_choice_is_equal_in_each_stage() {
    let template = "{% for i in range(20) %}{{ [0, 1, 2, 3] | random }}{% endfor %}";
    let first = rendered(template);
    assert_eq!(rendered(template), first);
    assert!((0..4).all(|n| first.contains(&n.to_string())), "{first}");
}

#[test]
fn the_header_line() {
    assert_eq!(body("## template: jinja\nx"), Some("x"));
    assert_eq!(body("##Template:Jinja  \r\nx"), Some("x"));
    assert_eq!(body("## template: jinja"), Some(""));
    assert_eq!(body("## template: basic\nx"), None);
    assert_eq!(body("#cloud-config\n"), None);
}

/// The library's sort would panic at values of which some have no order.
#[test]
fn values_without_an_order_are_sorted_or_refused() {
    let mut random = 1u32;
    for _ in 0..200 {
        let mut next = |of: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % of
        };
        let numbers: Vec<String> =
            (0..64).map(|_| if next(3) == 0 { "nan".into() } else { next(50).to_string() }).collect();
        let list = format!("{{% set nan = 'nan' | float %}}{{% set l = [{}] %}}", numbers.join(", "));
        assert!(rendered(&format!("{list}{{{{ l | sort | length }}}}")).contains("64"));
        let mixed: Vec<String> =
            (0..64).map(|i| if next(8) == 0 { format!("'{i}': 1") } else { format!("{}: 1", next(50)) }).collect();
        let text = rendered(&format!("{{{{ {{{}}} | tojson }}}}", mixed.join(", ")));
        assert!(text.starts_with('{') || text.contains("have no order"), "{text}");
    }
}

/// Operations that look like one step but take time in proportion to their values, repeated.
#[test]
fn large_values_in_loops_end_in_time() {
    let often = |set: &str, what: &str| {
        format!(
            "{{% set r = range(1000) %}}{set}{{% for i in r %}}{{% for j in r %}}{{% if {what} %}}{{% endif %}}{{% endfor %}}{{% endfor %}}"
        )
    };
    let (large, larger) = ("a".repeat(3 << 20), "a".repeat(2 << 20) + "b");
    let text = format!("{{% set x = '{large}' %}}");
    let list = "{% set l = range(100000) | list %}";
    let texts = "{% set l = [''] * 100000 %}";
    let named: String = (0..20_000).map(|i| format!("a{i}=1, ")).collect();
    for (name, template) in [
        ("the length of a text", often(&text, "x | length")),
        ("whether a text is a sequence", often(&text, "x is sequence and x is iterable")),
        ("a text as a number", often(&text, "x | int")),
        ("a text as a key", often(&format!("{text}{{% set d = {{'a': 1}} %}}"), "x in d")),
        ("strip", format!("{{{{ '{large}'.strip('{larger}') }}}}")),
        ("trim", format!("{{{{ '{large}' | trim('{larger}') }}}}")),
        ("startswith", format!("{{{{ '{large}'.startswith(['{larger}'] * 100000) }}}}")),
        ("sum", often(list, "l | sum")),
        ("select", often(list, "l | select('none')")),
        ("join", often(texts, "l | join")),
        ("reverse", often(list, "l.reverse()")),
        ("remove", often(list, "l.remove(0) or l.append(0)")),
        (
            "update",
            often("{% set e = {} %}{% for i in range(5000) %}{% do e.update({i: 1}) %}{% endfor %}", "e.update(e)"),
        ),
        (
            "a path",
            format!(
                "{{% set l = [] %}}{{% do l.append(l) %}}{{% for i in range(10000) %}}{{{{ l | map(attribute='{}') | first | length }}}}{{% endfor %}}",
                "0.".repeat(100_000) + "0"
            ),
        ),
        ("format", format!("{{{{ '{}'.format({named}z=1) | length }}}}", "{z}".repeat(500_000))),
        ("an endless name", often("", &"a".repeat(4 << 20))),
    ] {
        // A few steps are enough: each has to be short.
        let fuel = Fuel::default();
        Budget::new(&fuel).step(3_800_000).unwrap();
        let before = crate::base::testing::cpu_time();
        let error = render_with(&template, &Value::Null, &fuel).unwrap_err();
        let took = crate::base::testing::cpu_time() - before;
        println!("{name}: {took:?}: {error}");
        assert!(took < std::time::Duration::from_secs(5), "{name}: {took:?}");
    }
}

/// Lines without text, and what goes between them.
#[test]
fn what_goes_between_lines_is_counted() {
    let (lines, few) = ("\\n".repeat(1 << 20), "\\n".repeat(1 << 16));
    let glue = "x".repeat(1 << 20);
    assert!(rendered(&format!("{{{{ '{few}' | wordwrap(9, true, '{glue}') | length }}}}")).contains("more than"));
    assert!(rendered(&format!("{{{{ '{lines}'.splitlines() | length }}}}")).contains("more than"));
    assert!(rendered(&format!("{{{{ '{}'.split() | length }}}}", "a ".repeat(1 << 20))).contains("more than"));
}
