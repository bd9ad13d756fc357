//! Compiles the kernel sources as C++, through the header that stands in for CUDA; and some of them again and again,
//! each time without one of their barriers, for the test that such a loss shows.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Sources of which there are broken copies.
const BROKEN: [&str; 3] = ["embedding", "mix", "muon"];

const BARRIER: &str = "__syncthreads();";

fn main() {
    let sources = Path::new("../kernels/src/cuda");
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-changed=../../prepare/src/cross_entropy/cuda.cu");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let mut build = cc::Build::new();
    build.cpp(true).std("c++20").opt_level(2).include("shim").include(sources).file("shim/registry.cpp");
    // a compiler takes .cu for something to link; each is C++ here
    build.flag("-xc++").flag("-g1").warnings(true).flag("-Wno-unknown-pragmas");
    let folder = fs::read_dir(sources).expect("the kernels' sources lie beside this crate");
    let mut files: Vec<_> = folder.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "cu"));
    files.sort();
    files.push("../../prepare/src/cross_entropy/cuda.cu".into()); // the referee's
    build.files(files).files(broken(sources, &out));
    // kernels are found by name at run time: without this the linker would drop them, as nothing refers to them
    build.cargo_metadata(false).compile("emulated");
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static:+whole-archive=emulated");
    println!("cargo::rustc-link-lib=dylib=stdc++");
}

/// Writes for each source one file of its broken copies, each in a namespace of its own, and their names as `BROKEN`.
fn broken(sources: &Path, out: &Path) -> Vec<PathBuf> {
    let read = |file: String| {
        fs::read_to_string(sources.join(&file)).unwrap_or_else(|e| panic!("{file} cannot be read: {e}"))
    };
    let mut files = Vec::new();
    let mut names = String::from("/// Sources, and the names of their copies, each without one barrier.\n");
    names += "pub const BROKEN: &[(&str, &[&str])] = &[\n";
    for source in BROKEN {
        let once = |line: &&str| !line.starts_with("#pragma once") && !line.starts_with("#include \"");
        let text: Vec<String> = ["device.cuh".into(), format!("{source}.cu")]
            .into_iter()
            .flat_map(|file| read(file).lines().filter(once).map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let mut copies = String::from("#include \"cuda_on_cpu.h\"\n");
        names += &format!("    ({source:?}, &[");
        let barriers = (0..text.len()).filter(|&i| text[i].contains(BARRIER));
        for (n, at) in barriers.enumerate() {
            let name = format!(" of {source} without barrier {n}");
            let mut without = text.clone();
            without[at] = without[at].replace(BARRIER, ";");
            copies +=
                &format!("#undef VARIANT\n#define VARIANT {name:?}\nnamespace {source}_without_{n} {{\n");
            copies += &(without.join("\n") + "\n}\n");
            names += &format!("{name:?}, ");
        }
        names += "]),\n";
        let file = out.join(format!("broken_{source}.cpp"));
        fs::write(&file, copies).expect("OUT_DIR is writable");
        files.push(file);
    }
    fs::write(out.join("broken.rs"), names + "];\n").expect("OUT_DIR is writable");
    files
}
