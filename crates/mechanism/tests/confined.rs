//! Scripts that look for a way out.

use mechanism::{FaultKind, Hook};
use serde_json::json;

use crate::{ask, fault, hook, host};

#[test]
fn there_is_no_file_no_module_no_code_from_texts() {
    for body in [
        "open(\"/etc/passwd\")",
        "open_file(\"/etc/passwd\")",
        "read(\"/etc/passwd\")",
        "import \"os\" as os; os::getenv()",
        "import \"/etc/passwd\" as p;",
        "eval(\"40 + 2\")",
        "Fn(\"eval\").call(\"40 + 2\")",
        "call(\"eval\", \"40 + 2\")",
        "std::fs::read()",
        "system(\"ls\")",
        "exec(\"ls\")",
        "env(\"HOME\")",
        "timestamp()",
        "now()",
        "rand()",
        "exit(1)",
        "export x as y;",
    ] {
        for name in Hook::ALL {
            let fault = fault(&hook(name, body), name);
            assert!(matches!(fault.kind, FaultKind::Syntax | FaultKind::Thrown), "{fault}\n{body}");
        }
    }
}

#[test]
fn a_flood_of_prints_goes_nowhere() {
    let body = "let t = \"\"; t.pad(60_000, \"x\"); for n in 0..10_000 { print(t); debug(t); } \"fine\"";
    assert_eq!(ask(&mut host(&hook(Hook::Guide, body)), Hook::Guide, &json!({})), Ok(json!("fine")));
}
