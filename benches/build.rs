//! Applies each edit in `edits/` to a copy of the contestant's sources and writes a module for each.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

const SOURCES: [&str; 2] = ["model.rs", "optim.rs"];

fn main() -> Result<(), Box<dyn Error>> {
    let train = Path::new("../train/src");
    println!("cargo::rerun-if-changed=edits");
    println!("cargo::rerun-if-changed={}", train.display());
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut files: Vec<PathBuf> =
        fs::read_dir("edits")?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "txt"));
    files.sort();

    let (mut modules, mut list, mut stale) = (String::new(), String::new(), String::new());
    let unedited = ("unedited".to_string(), "the contestant as it is\n".to_string());
    let edits = files.iter().map(|f| {
        let name = f.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        fs::read_to_string(f).map(|text| (name, text))
    });
    for (name, text) in std::iter::once(Ok(unedited)).chain(edits).collect::<Result<Vec<_>, _>>()? {
        let (about, changes) =
            text.split_once('\n').ok_or("an edit begins with a line that says what it does")?;
        let mut sources = Vec::new();
        for file in SOURCES {
            sources.push(fs::read_to_string(train.join(file))?);
        }
        if let Err(problem) = apply(changes, &mut sources) {
            writeln!(stale, "    ({name:?}, {problem:?}),")?;
            continue;
        }
        let dir = out.join(&name);
        fs::create_dir_all(&dir)?;
        writeln!(modules, "pub mod {name} {{")?;
        for (file, source) in SOURCES.iter().zip(sources) {
            let path = dir.join(file);
            fs::write(&path, source)?;
            let module = file.trim_end_matches(".rs");
            writeln!(modules, "    #[path = {path:?}]\n    pub mod {module};")?;
        }
        writeln!(modules, "    stepper!();\n}}")?;
        writeln!(list, "    Edit {{ name: {name:?}, about: {about:?}, start: {name}::start }},")?;
    }
    let text = format!(
        "{modules}\npub const EDITS: &[Edit] = &[\n{list}];\n\npub const STALE: &[(&str, &str)] = &[\n{stale}];\n"
    );
    fs::write(out.join("edits.rs"), text)?;
    Ok(())
}

/// Replaces each old text, which must be there exactly once, by its new one.
fn apply(changes: &str, sources: &mut [String]) -> Result<(), String> {
    let mut rest = changes;
    while let Some((file, after)) = rest.split_once("\n<<<<\n") {
        let (change, after) = after.split_once(">>>>\n").ok_or("a change without an end")?;
        let (old, new) = change.split_once("====\n").ok_or("a change without a new text")?;
        let which = SOURCES.iter().position(|s| *s == file.trim()).ok_or(format!("no source {file:?}"))?;
        // a replaced piece of a line ends without a line's end
        let (old, new) = match sources[which].contains(old) {
            true => (old, new),
            false => (old.trim_end_matches('\n'), new.trim_end_matches('\n')),
        };
        if sources[which].matches(old).count() != 1 {
            return Err(format!("{} has no longer exactly one {old:?}", SOURCES[which]));
        }
        sources[which] = sources[which].replacen(old, new, 1);
        rest = after;
    }
    if rest.trim().is_empty() { Ok(()) } else { Err(format!("not understood: {rest:?}")) }
}
