use proptest::prelude::*;

use super::*;

fn workstation() -> Attributes {
    let text = |text: &str| Value::Text(text.to_owned());
    let of = [
        ("memory", Value::Number(8.0 * f64::from(1 << 30))),
        ("cores", Value::Number(4.0)),
        ("os", text("Debian GNU/Linux 12")),
        ("group", text("floor-2")),
        ("matlab", Value::Flag(true)),
        ("x11", Value::Flag(false)),
    ];
    of.map(|(name, value)| (name.to_owned(), value)).into()
}

fn is_met(text: &str) -> bool {
    text.parse::<Requirement>()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .is_met(&workstation())
}

#[test]
fn what_is_asked_is_met_or_not() {
    for met in [
        "",
        "memory >= 4GiB",
        "memory>=8GiB",
        "memory == 8589934592",
        "cores > 3.5 && cores <= 4",
        r#"os ~ "debian" && has("matlab")"#,
        r#"os != "Windows""#,
        r#"group == "floor-2" || group == "floor-3""#,
        r#"!has("x11") && !has("gpu")"#,
        "matlab == true",
        r#"cores < 2 && memory > 1TiB || has("matlab")"#,
        r#"(cores < 2 || cores > 3) && (os ~ "deb")"#,
        "!(gpu_memory > 4GiB)",
    ] {
        assert!(is_met(met), "{met}");
    }
    for unmet in [
        "memory > 8GiB",
        r#"os == "debian""#,
        r#"has("gpu")"#,
        r#"has("x11")"#,
        "gpu_memory > 0",
        "gpu_memory <= 0",
        r#"cores == "4""#,
        r#"cores ~ "4""#,
        r#"cores < 2 && (memory > 1TiB || has("matlab"))"#,
    ] {
        assert!(!is_met(unmet), "{unmet}");
    }
}

#[test]
fn unmet_conditions_are_told_one_by_one() {
    let asked = r#"memory >= 16GiB && has("matlab") && (cores > 4 || group ~ "x")"#;
    let asked: Requirement = asked.parse().unwrap();
    let unmet: Vec<_> = asked.unmet(&workstation()).map(ToString::to_string).collect();
    assert_eq!(unmet, ["memory >= 16GiB", r#"(cores > 4 || group ~ "x")"#]);
    let whole: Requirement = r#"cores > 4 && memory > 1B || has("x11")"#.parse().unwrap();
    assert_eq!(whole.conditions().len(), 1, "`||` binds less than `&&`");
}

#[test]
fn what_does_not_read_is_told_in_one_line() {
    for (text, told) in [
        ("memory => 4GiB", "from `=> 4GiB` on: expected `==`"),
        ("memory >= 4 GiB", "from `GiB` on: expected `&&`"),
        ("memory >= 4QiB", "from `4QiB` on: expected a number"),
        ("memory >=", "from `the end` on: expected a number"),
        ("memory", "from `the end` on: expected `==`"),
        ("has(matlab)", "from `matlab)` on: expected a text in double quotes"),
        (r#"has("matlab)"#, "from `the end` on: expected a text in double quotes"),
        ("(cores > 2", "from `the end` on: expected `)`"),
        ("cores > 2 &&", "expected `&&`, `||` or the end"),
        ("cores > 2 and cores < 3", "from `and cores < 3` on: expected `&&`"),
        ("4 < cores", "from `4 < cores` on: expected a condition such as"),
        ("cores > nan", "from `nan` on: expected a number"),
        ("cores > 1.2.3", "from `1.2.3` on: expected a number"),
    ] {
        let error = text.parse::<Requirement>().unwrap_err().to_string();
        assert!(error.contains(told) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn a_long_or_deep_one_is_refused_before_it_is_read() {
    let deep = format!("{}cores > 1{}", "(".repeat(300), ")".repeat(300));
    assert_eq!(deep.parse::<Requirement>(), Err(RequirementError::TooDeep(300)));
    let long = vec!["cores > 1"; 200].join(" && ");
    assert_eq!(long.parse::<Requirement>(), Err(RequirementError::TooLong(long.len())));
}

#[test]
fn what_a_site_adds_is_bounded() {
    let of = |name: &str, value| Attributes::from([(name.to_owned(), value)]);
    assert_eq!(check(&workstation()), Ok(()));
    let many = (0..65).map(|n| (format!("a{n}"), Value::Flag(true))).collect();
    assert_eq!(check(&many), Err(AttributeError::TooMany(65)));
    for name in ["", "4", "a b", "é", "a\n", &"x".repeat(300)] {
        let refused = check(&of(name, Value::Flag(true))).unwrap_err();
        assert!(matches!(refused, AttributeError::Name(_)), "{refused}");
    }
    let refused = check(&of("speed", Value::Number(f64::NAN)));
    assert_eq!(refused, Err(AttributeError::Number("speed".into())));
    for text in ["x".repeat(300), "\u{1b}[2J".into()] {
        let refused = check(&of("os", Value::Text(text)));
        assert_eq!(refused, Err(AttributeError::Text("os".into())));
    }
}

#[test]
fn it_crosses_the_wire_as_its_text() {
    let asked: Requirement = "memory >= 4GiB && cores > 2".parse().unwrap();
    let bytes = postcard::to_stdvec(&asked).unwrap();
    assert_eq!(postcard::from_bytes::<Requirement>(&bytes).unwrap(), asked);
    let nonsense = postcard::to_stdvec("memory >>").unwrap();
    assert!(postcard::from_bytes::<Requirement>(&nonsense).is_err());
}

proptest! {
    #[test]
    fn nothing_that_is_asked_ends_a_coordinator(text in r#"[a-z0-9 ()!&|<>=~".]{0,80}"#) {
        if let Ok(asked) = text.parse::<Requirement>() {
            let unmet = asked.unmet(&workstation()).count();
            prop_assert_eq!(asked.is_met(&workstation()), unmet == 0);
        }
    }
}
