//! With `cuda`: compiles each kernel source with nvcc into a fat binary that `src/cuda/stream.rs` carries.
//!
//! Machine code for each architecture, so that no run spends its budget on a compiler in the driver: 8.0 serves 8.6
//! and 8.9 too. The newest also as PTX, for what comes after it. `KERNELS_ARCHS`, such as `80,90`, builds fewer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const ARCHS: &str = "80,90,100,120";

fn main() {
    println!("cargo::rerun-if-changed=src/cuda");
    println!("cargo::rerun-if-env-changed=KERNELS_ARCHS");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let archs = env::var("KERNELS_ARCHS").unwrap_or_else(|_| ARCHS.into());
    let nvcc = nvcc();
    let folder = fs::read_dir("src/cuda").expect("the sources are part of the crate");
    let mut sources: Vec<_> = folder.map(|entry| entry.expect("readable").path()).collect();
    sources.retain(|file| file.extension().is_some_and(|e| e == "cu"));
    sources.sort();
    let mut modules = String::from("const MODULES: &[(&str, &[u8])] = &[\n");
    for source in sources {
        let name =
            source.file_stem().and_then(|s| s.to_str()).expect("sources are named in ASCII").to_owned();
        let binary = out.join(format!("{name}.fatbin"));
        compile(&nvcc, &source, &binary, &archs);
        modules += &format!("    ({name:?}, include_bytes!({:?})),\n", binary.display().to_string());
    }
    fs::write(out.join("modules.rs"), modules + "];\n").expect("OUT_DIR is writable");
}

fn compile(nvcc: &Path, source: &Path, binary: &Path, archs: &str) {
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-O3", "-fatbin", "-o"]).arg(binary).arg(source);
    let archs: Vec<&str> = archs.split(',').map(str::trim).collect();
    for arch in &archs {
        command.arg(format!("-gencode=arch=compute_{arch},code=sm_{arch}"));
    }
    if let Some(newest) = archs.last() {
        command.arg(format!("-gencode=arch=compute_{newest},code=compute_{newest}"));
    }
    // the architectures of one source side by side
    command.arg("--threads=0");
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?}: {status}"),
        Err(e) => panic!("{}: {e}; `--features cuda` needs the CUDA toolkit, nvcc on PATH", nvcc.display()),
    }
}

/// nvcc: below CUDA's usual roots, or on PATH.
fn nvcc() -> PathBuf {
    let roots = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];
    let named = roots.iter().filter_map(env::var_os).map(PathBuf::from);
    let usual = ["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from);
    let mut found = named.chain(usual).map(|root| root.join("bin/nvcc")).filter(|nvcc| nvcc.is_file());
    found.next().unwrap_or_else(|| PathBuf::from("nvcc"))
}
