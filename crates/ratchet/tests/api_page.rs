//! `docs/api.md`: what an edit of `train/src` may call, from the doc comments of `tape` and `kernels`.
//!
//! Proposers are shown the page. `UPDATE_API_PAGE=1 cargo test -p ratchet --test main api_page` writes it anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Type, UseTree, Visibility};

use crate::source::{Source, doc, first, hold, sources};

const PAGE: &str = "docs/api.md";
/// Bytes: more would crowd out the trials in a small model's context.
const MOST: usize = 48 << 10;
/// Launches kernels for the ops themselves; nothing that a model or an optimizer would call.
const INNER: [&str; 1] = ["cuda"];

#[test]
fn the_api_page_is_what_the_doc_comments_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = page(&root);
    assert!(page.len() < MOST, "{} bytes", page.len());
    hold(PAGE, &page, "UPDATE_API_PAGE", "api_page");
}

#[test]
fn a_page_holds_signatures_first_lines_and_shapes_of_what_is_public() {
    // oracle: written by hand
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join("crates/toy/src").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "//! A toy.\n\nmod inner;\npub mod op;\npub use inner::{Kept};\n");
    write(
        "inner.rs",
        "/// Kept\n/// for long.\n///\n/// More.\npub struct Kept(u8);\npub struct Hidden;\n\
         impl Kept {\n    /// x: (B, T) → (B, T).\n    pub fn go(\n        &self,\n        x: &Tensor,\n    ) -> Result<Tensor> { todo() }\n    fn own(&self) {}\n}\n",
    );
    write(
        "op.rs",
        "//! One op.\n\n/// What [`go`] gives.\npub struct Out {\n    /// (B, T).\n    pub y: Tensor,\n    z: u8,\n}\n\
         /// Goes.\npub fn go<T: Real>(x: T) -> Out where T: Copy { todo() }\nfn not() {}\n#[cfg(test)]\npub mod tests {}\n",
    );
    let mut text = String::new();
    krate(&mut text, dir.path(), "toy");
    let wanted = "\n## toy\n\nA toy.\n\n### toy::Kept\n\nKept for long.\n\n\
                  - `fn go(&self, x: &Tensor) -> Result<Tensor>`: x: (B, T) → (B, T).\n\n\
                  ### toy::op\n\nOne op.\n\n\
                  - `struct Out`: What [`go`] gives.\n  - `y: Tensor`: (B, T).\n\
                  - `fn go<T: Real>(x: T) -> Out where T: Copy`: Goes.\n";
    assert_eq!(text, wanted);
}

fn page(root: &Path) -> String {
    let mut text = "# The API that train/src builds on\n\nMade of the doc comments by \
                    `crates/ratchet/tests/api_page.rs`; not to be edited by hand. Letters in shapes: B sequences, \
                    T positions, H heads, D width of a head, C width, V vocabulary.\n"
        .to_owned();
    for name in ["tape", "kernels"] {
        krate(&mut text, root, name);
    }
    text
}

/// What a crate makes public.
struct Surface {
    /// (name in the crate, what it is) → lines, in the order in which they stand in the source.
    sections: BTreeMap<String, Section>,
}

#[derive(Default)]
struct Section {
    intro: String,
    lines: String,
}

fn krate(text: &mut String, root: &Path, name: &str) {
    let folder = root.join("crates").join(name).join("src");
    let files = sources(&folder);
    let lib = &files["lib"];
    let _ = write!(text, "\n## {name}\n\n{}\n", demoted(&doc(&lib.parsed.attrs)).trim_end());
    let (mut open, mut exported) = (BTreeSet::new(), BTreeSet::new());
    for item in &lib.parsed.items {
        match item {
            Item::Mod(module) if is_public(&module.vis) => drop(open.insert(module.ident.to_string())),
            Item::Use(item) if is_public(&item.vis) => names(&item.tree, &mut exported),
            _ => {}
        }
    }
    let mut surface = Surface { sections: BTreeMap::new() };
    for (module, source) in &files {
        let inner = module.split("::").any(|part| INNER.contains(&part));
        if !inner && module != "lib" {
            surface.take(source, open.contains(module).then_some(module), &exported);
        }
    }
    for (title, Section { intro, lines }) in surface.sections {
        let _ = write!(
            text,
            "\n### {name}::{title}\n\n{intro}\n{}{lines}",
            if lines.is_empty() { "" } else { "\n" }
        );
    }
}

impl Surface {
    /// A module that is public itself is a section; of another, what is exported from it.
    fn take(&mut self, source: &Source, module: Option<&String>, exported: &BTreeSet<String>) {
        if let Some(module) = module {
            self.sections.entry(module.clone()).or_default().intro = first(&doc(&source.parsed.attrs));
        }
        for item in source.parsed.items.iter().filter(|item| !is_test(item)) {
            match item {
                Item::Impl(block) if block.trait_.is_none() => {
                    let Type::Path(path) = &*block.self_ty else { continue };
                    let of = path.path.segments.last().unwrap().ident.to_string();
                    let title = if exported.contains(&of) { Some(&of) } else { module };
                    for item in &block.items {
                        if let (ImplItem::Fn(item), Some(title)) = (item, title)
                            && is_public(&item.vis)
                        {
                            let name = if exported.contains(&of) { String::new() } else { format!("{of}: ") };
                            self.line(title, 0, &(name + source.slice(&item.sig).as_str()), &item.attrs);
                        }
                    }
                }
                Item::Fn(item) if is_public(&item.vis) => {
                    self.member(module, exported, &item.sig.ident, &source.slice(&item.sig), &item.attrs);
                }
                Item::Const(item) if is_public(&item.vis) => {
                    let text = format!("const {}: {}", item.ident, source.slice(&item.ty));
                    self.member(module, exported, &item.ident, &text, &item.attrs);
                }
                Item::Struct(item) if is_public(&item.vis) => {
                    let text = format!("struct {}", item.ident);
                    let Some(title) = self.member(module, exported, &item.ident, &text, &item.attrs) else {
                        continue;
                    };
                    if let Fields::Named(fields) = &item.fields {
                        for field in fields.named.iter().filter(|field| is_public(&field.vis)) {
                            let name = field.ident.as_ref().unwrap();
                            self.line(
                                &title,
                                2,
                                &format!("{name}: {}", source.slice(&field.ty)),
                                &field.attrs,
                            );
                        }
                    }
                }
                Item::Enum(item) if is_public(&item.vis) => {
                    let text = format!("enum {}", item.ident);
                    let Some(title) = self.member(module, exported, &item.ident, &text, &item.attrs) else {
                        continue;
                    };
                    for variant in &item.variants {
                        self.line(&title, 2, &source.slice(&variant.ident), &variant.attrs);
                    }
                }
                Item::Trait(item) if is_public(&item.vis) => {
                    let text = format!("trait {}", item.ident);
                    let Some(title) = self.member(module, exported, &item.ident, &text, &item.attrs) else {
                        continue;
                    };
                    for item in &item.items {
                        if let TraitItem::Fn(item) = item {
                            self.line(&title, 2, &source.slice(&item.sig), &item.attrs);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// An item as a line of its public module, or as a section where it is exported from a private one; which.
    fn member(
        &mut self,
        module: Option<&String>,
        exported: &BTreeSet<String>,
        ident: &syn::Ident,
        text: &str,
        attrs: &[Attribute],
    ) -> Option<String> {
        match module {
            Some(module) => {
                self.line(module, 0, text, attrs);
                Some(module.clone())
            }
            None => {
                let title = Some(ident.to_string()).filter(|name| exported.contains(name))?;
                self.sections.entry(title.clone()).or_default().intro = first(&doc(attrs));
                Some(title)
            }
        }
    }

    fn line(&mut self, title: &str, indent: usize, text: &str, attrs: &[Attribute]) {
        let section = self.sections.entry(title.to_owned()).or_default();
        let about = first(&doc(attrs));
        let about = if about.is_empty() { about } else { format!(": {about}") };
        let _ = writeln!(section.lines, "{:indent$}- `{text}`{about}", "");
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_test(item: &Item) -> bool {
    let Item::Mod(module) = item else { return false };
    module.attrs.iter().any(|attr| attr.path().is_ident("cfg"))
}

/// The names that a `pub use` exports.
fn names(tree: &UseTree, into: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => names(&path.tree, into),
        UseTree::Name(name) => drop(into.insert(name.ident.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, into)),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("the page cannot follow this `pub use`"),
    }
}

/// A crate's own page below a heading of this one; hidden lines of its examples stay hidden.
fn demoted(doc: &str) -> String {
    let mut code = false;
    let mut text = String::new();
    for line in doc.lines() {
        code ^= line.starts_with("```");
        let hidden = code && line.starts_with("# ");
        if !hidden {
            let heading = !code && line.starts_with('#');
            let _ = writeln!(text, "{}{line}", if heading { "##" } else { "" });
        }
    }
    text
}
