//! The types of the driver as they are stored: fields, docs, and what serde makes of their names.

use std::collections::BTreeMap;

use syn::{Attribute, Fields, GenericArgument, Item, ItemEnum, ItemStruct, PathArguments, Type, UseTree};

use crate::source::{Source, doc, first, root, sources};

/// Crates whose types stand in records.
const CRATES: [&str; 3] = ["ratchet", "llm", "mechanism"];

/// All structs and enums, by name.
pub(super) struct Types {
    pub(super) sources: BTreeMap<String, Source>,
    places: BTreeMap<String, Vec<String>>,
}

/// What `#[serde(…)]` says.
#[derive(Default)]
pub(super) struct Serde {
    pub(super) rename: Option<String>,
    pub(super) rename_all: Option<String>,
    pub(super) skip: bool,
    pub(super) flatten: bool,
    /// There is a default: by a function of this path, or the type's own.
    pub(super) default: Option<Option<String>>,
}

pub(super) fn serde(attrs: &[Attribute]) -> Serde {
    let mut said = Serde::default();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        let read = attr.parse_nested_meta(|meta| {
            let value = match meta.input.peek(syn::Token![=]) {
                true => Some(meta.value()?.parse::<syn::LitStr>()?.value()),
                false => None,
            };
            match meta.path.get_ident().map(ToString::to_string).as_deref() {
                Some("rename") => said.rename = value,
                Some("rename_all") => said.rename_all = value,
                Some("skip" | "skip_deserializing") => said.skip = true,
                Some("flatten") => said.flatten = true,
                Some("default") => said.default = Some(value),
                _ => {}
            }
            Ok(())
        });
        read.unwrap();
    }
    said
}

/// A struct or an enum, and the module that it stands in.
pub(super) struct Found<'a> {
    pub(super) module: &'a str,
    pub(super) item: &'a Item,
}

impl Types {
    pub(super) fn read() -> Self {
        let mut all = BTreeMap::new();
        for name in CRATES {
            let files = sources(&root().join("crates").join(name).join("src"));
            all.extend(files.into_iter().map(|(module, source)| (format!("{name}::{module}"), source)));
        }
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (module, source) in &all {
            for item in &source.parsed.items {
                if let Some(name) = name_of(item) {
                    places.entry(name).or_default().push(module.clone());
                }
            }
        }
        Self { sources: all, places }
    }

    /// The type that `name` means in `module`; `None` for one of another crate.
    pub(super) fn find(&self, name: &str, module: &str) -> Option<Found<'_>> {
        let places = self.places.get(name)?;
        let place = match places.as_slice() {
            [one] => one,
            _ => places.iter().find(|place| *place == module).or_else(|| {
                let from = self.import(name, module)?;
                places.iter().find(|place| place.starts_with(&from))
            })?,
        };
        let item =
            self.sources[place].parsed.items.iter().find(|item| name_of(item).as_deref() == Some(name));
        Some(Found { module: place, item: item? })
    }

    /// The module that a `use` of this file takes a name from.
    fn import(&self, name: &str, module: &str) -> Option<String> {
        fn search(tree: &UseTree, name: &str, path: &mut Vec<String>) -> bool {
            match tree {
                UseTree::Path(inner) => {
                    path.push(inner.ident.to_string());
                    let found = search(&inner.tree, name, path);
                    if !found {
                        path.pop();
                    }
                    found
                }
                UseTree::Name(last) => last.ident == name,
                UseTree::Group(group) => group.items.iter().any(|tree| search(tree, name, path)),
                UseTree::Rename(_) | UseTree::Glob(_) => false,
            }
        }
        self.sources[module].parsed.items.iter().find_map(|item| {
            let Item::Use(item) = item else { return None };
            let mut path = Vec::new();
            search(&item.tree, name, &mut path).then(|| {
                let own = module.split("::").next().unwrap_or_default();
                let above = module.rsplit_once("::").map_or(own, |(above, _)| above);
                let whole = |part: &String| match part.as_str() {
                    "crate" => own.to_owned(),
                    "super" => above.to_owned(),
                    "self" => module.to_owned(),
                    part => part.to_owned(),
                };
                path.iter().map(whole).collect::<Vec<_>>().join("::")
            })
        })
    }

    /// What a value of this type looks like in JSON or TOML; `meet` is told of each named type.
    pub(super) fn shape(
        &self,
        ty: &Type,
        module: &str,
        meet: &mut dyn FnMut(&str, &str) -> String,
    ) -> String {
        let mut inner = |ty: &Type| self.shape(ty, module, meet);
        match ty {
            Type::Tuple(tuple) => {
                format!("[{}]", tuple.elems.iter().map(inner).collect::<Vec<_>>().join(", "))
            }
            Type::Array(array) => format!("list of {}", inner(&array.elem)),
            Type::Path(path) => {
                let last = path.path.segments.last().unwrap();
                let arguments: Vec<&Type> = match &last.arguments {
                    PathArguments::AngleBracketed(list) => list
                        .args
                        .iter()
                        .filter_map(|arg| if let GenericArgument::Type(ty) = arg { Some(ty) } else { None })
                        .collect(),
                    _ => Vec::new(),
                };
                match (last.ident.to_string().as_str(), arguments.as_slice()) {
                    ("Option", [ty]) => format!("{} or null", inner(ty)),
                    ("Box" | "Spanned", [ty]) => inner(ty),
                    ("Vec" | "BTreeSet", [ty]) => format!("list of {}", inner(ty)),
                    ("BTreeMap", [_, ty]) => format!("object of {}", inner(ty)),
                    ("String" | "PathBuf", _) => "text".to_owned(),
                    ("bool", _) => "boolean".to_owned(),
                    ("f64" | "f32", _) => "number".to_owned(),
                    ("u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64", _) => "integer".to_owned(),
                    ("Time", _) => "time of day".to_owned(),
                    ("Value", _) => "anything".to_owned(),
                    (name, _) => match self.find(name, module) {
                        None => panic!("{module}: {name} is of no crate that is read"),
                        Some(found) => match found.item {
                            // a newtype is what it holds
                            Item::Struct(ItemStruct { fields: Fields::Unnamed(fields), .. }) => {
                                let ty = &fields.unnamed.first().unwrap().ty;
                                self.shape(ty, found.module, meet)
                            }
                            _ => meet(name, found.module),
                        },
                    },
                }
            }
            _ => panic!("{module}: a type that no record holds"),
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    match item {
        Item::Struct(item) => Some(item.ident.to_string()),
        Item::Enum(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

/// The stored names of an enum's variants, with their docs; those that are never read are left out.
pub(super) fn variants(item: &ItemEnum) -> Vec<(String, String)> {
    let all = serde(&item.attrs);
    let stored = item.variants.iter().filter_map(|variant| {
        let own = serde(&variant.attrs);
        let name = own.rename.unwrap_or_else(|| cased(&variant.ident.to_string(), all.rename_all.as_deref()));
        (!own.skip).then(|| (name, first(&doc(&variant.attrs))))
    });
    stored.collect()
}

/// A variant's name by serde's rule.
pub(super) fn cased(name: &str, rule: Option<&str>) -> String {
    match rule {
        Some("snake_case") => {
            let mut text = String::new();
            for (i, c) in name.char_indices() {
                if c.is_uppercase() && i > 0 {
                    text.push('_');
                }
                text.extend(c.to_lowercase());
            }
            text
        }
        Some("lowercase") => name.to_lowercase(),
        None => name.to_owned(),
        Some(other) => panic!("rename_all = {other:?} is not known here"),
    }
}
