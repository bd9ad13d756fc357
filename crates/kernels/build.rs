//! With `cuda`: compiles each kernel source with nvcc into a fat binary that `src/cuda/stream.rs` carries.
//!
//! Machine code for each architecture, so that no run spends its budget on a compiler in the driver: 8.0 serves 8.6
//! and 8.9 too. The oldest and the newest also as PTX, for what lies between them and after. An older nvcc leaves out what it does not know, and
//! `KERNELS_ARCHS`, such as `80,90`, builds fewer.

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "cuda")]
fn main() {
    nvcc::main();
}

#[cfg(feature = "cuda")]
mod nvcc {
    use cudaforge::CudaToolkit;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::{env, fs};

    const ARCHS: &str = "80,90,100,120";

    pub(super) fn main() {
        println!("cargo::rerun-if-changed=src/cuda");
        println!("cargo::rerun-if-env-changed=KERNELS_ARCHS");
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
        let toolkit = CudaToolkit::detect().unwrap_or_else(|e| panic!("`--features cuda` needs nvcc: {e}"));
        let archs = env::var("KERNELS_ARCHS").unwrap_or_else(|_| ARCHS.into());
        let known = toolkit.supported_architectures();
        let mut archs: Vec<usize> = archs
            .split(',')
            .map(|arch| {
                arch.trim().parse().unwrap_or_else(|_| panic!("KERNELS_ARCHS holds `{arch}`, no number"))
            })
            .collect();
        archs.retain(|arch| known.is_empty() || known.contains(arch));
        archs.sort();
        let folder = fs::read_dir("src/cuda").expect("the sources are part of the crate");
        let mut sources: Vec<_> = folder.map(|entry| entry.expect("readable").path()).collect();
        sources.retain(|file| file.extension().is_some_and(|e| e == "cu"));
        sources.sort();
        let mut modules = String::from("const MODULES: &[(&str, &[u8])] = &[\n");
        for source in sources {
            let name = source.file_stem().and_then(|s| s.to_str()).expect("sources are named in ASCII");
            let binary = out.join(format!("{name}.fatbin"));
            compile(&toolkit.nvcc_path, &source, &binary, &archs);
            modules += &format!("    ({name:?}, include_bytes!({:?})),\n", binary.display().to_string());
        }
        fs::write(out.join("modules.rs"), modules + "];\n").expect("OUT_DIR is writable");
    }

    fn compile(nvcc: &Path, source: &Path, binary: &Path, archs: &[usize]) {
        let mut command = Command::new(nvcc);
        command.args(["-std=c++17", "-O3", "-fatbin", "-o"]).arg(binary).arg(source);
        for arch in archs {
            command.arg(format!("-gencode=arch=compute_{arch},code=sm_{arch}"));
        }
        let mut as_ptx: Vec<&usize> = archs.first().into_iter().chain(archs.last()).collect();
        as_ptx.dedup();
        for arch in as_ptx {
            command.arg(format!("-gencode=arch=compute_{arch},code=compute_{arch}"));
        }
        // the architectures of one source side by side
        command.arg("--threads=0");
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("{command:?}: {status}"),
            Err(e) => panic!("{}: {e}", nvcc.display()),
        }
    }
}
