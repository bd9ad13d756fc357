//! With `cuda`: compiles the exam's one kernel to PTX for compute capability 8.0, which newer devices translate.

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "cuda")]
fn main() -> cudaforge::Result<()> {
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let kernel = cudaforge::KernelBuilder::new().source_files(["src/cross_entropy/cuda.cu"]).compute_cap(80);
    kernel.args(["-std=c++17", "-O3"]).build_ptx()?.write(out.join("ptx.rs"))
}
