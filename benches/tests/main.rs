//! The edits in `edits/` still apply, compile, and train.

#[test]
fn every_scripted_edit_compiles_and_trains() {
    let sizes = ["--vocab", "64", "--depth", "3", "--width", "48", "--head-dim", "16", "--context", "32"];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_edits"))
        .args(sizes)
        .args(["--rows", "4", "--rounds", "4"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.lines().count(), 2 + 10, "a heading, the unedited contestant, ten edits:\n{table}");
}
