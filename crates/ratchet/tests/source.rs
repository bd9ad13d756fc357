//! Source read for what its doc comments say, and pages made of that which must not go stale.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Expr, Lit, Meta, spanned::Spanned};

/// The project's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page is what the code makes it; where `variable` is set it is written anew.
#[track_caller]
pub(crate) fn hold(page: &str, text: &str, variable: &str, test: &str) {
    let path = root().join(page);
    if std::env::var_os(variable).is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let stands = fs::read_to_string(&path).unwrap_or_default();
    assert!(stands == text, "{page} is stale: {variable}=1 cargo test -p ratchet --test main {test}");
}

/// A file of Rust.
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) parsed: syn::File,
}

/// The files of a crate by module path.
pub(crate) fn sources(folder: &Path) -> BTreeMap<String, Source> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<(PathBuf, String)> = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let module = if stem == "mod" {
                prefix.trim_end_matches("::").to_owned()
            } else {
                format!("{prefix}{stem}")
            };
            if path.is_dir() {
                folders.push((path.clone(), format!("{module}::")));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let parsed =
                    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found.insert(module, Source { text, parsed });
            }
        }
    }
    found
}

impl Source {
    /// A part of the source as it stands there, on one line.
    pub(crate) fn slice(&self, part: &impl Spanned) -> String {
        let words: Vec<&str> = self.text[part.span().byte_range()].split_whitespace().collect();
        words.join(" ").replace("( ", "(").replace(", )", ")").replace(",)", ")")
    }
}

/// The doc comment, a line each.
pub(crate) fn doc(attrs: &[Attribute]) -> String {
    let mut text = String::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("doc")) {
        if let Meta::NameValue(meta) = &attr.meta
            && let Expr::Lit(literal) = &meta.value
            && let Lit::Str(line) = &literal.lit
        {
            let line = line.value();
            text.push_str(line.strip_prefix(' ').unwrap_or(&line));
            text.push('\n');
        }
    }
    text
}

/// Its first paragraph, on one line.
pub(crate) fn first(doc: &str) -> String {
    doc.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect::<Vec<_>>().join(" ")
}
