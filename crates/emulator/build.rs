//! Compiles the kernel sources as C++, through the header that stands in for CUDA.

use std::path::Path;

fn main() {
    let sources = Path::new("../kernels/src/cuda");
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut build = cc::Build::new();
    build.cpp(true).std("c++20").opt_level(2).include("shim").include(sources).file("shim/registry.cpp");
    // a compiler takes .cu for something to link; each is C++ here
    build.flag("-xc++").flag("-g1").warnings(true).flag("-Wno-unknown-pragmas");
    let folder = std::fs::read_dir(sources).expect("the kernels' sources lie beside this crate");
    let mut files: Vec<_> = folder.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "cu"));
    files.sort();
    build.files(files);
    // kernels are found by name at run time: without this the linker would drop them, as nothing refers to them
    build.cargo_metadata(false).compile("emulated");
    println!("cargo::rustc-link-search=native={}", std::env::var("OUT_DIR").expect("set by cargo"));
    println!("cargo::rustc-link-lib=static:+whole-archive=emulated");
    println!("cargo::rustc-link-lib=dylib=stdc++");
}
