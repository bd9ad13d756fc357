//! CUDA without a GPU: libraries that a C compiler makes here stand in for NVIDIA's, the real loader looks for
//! them, and trials end as those of a GPU do.
#![cfg(target_os = "linux")]

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::toy::Toy;

/// Compiles C; `args` name the output.
fn cc(dir: &Path, source: &str, args: &[&str]) {
    std::fs::write(dir.join("source.c"), source).unwrap();
    let status = Command::new("cc").args(["source.c", "-L."]).args(args).current_dir(dir).status();
    assert!(status.expect("a C compiler, which candle needs as well").success());
}

/// A driver's library that answers `cuInit` with this code, for a card of capability 9.0 and CUDA 13.0.
fn driver(dir: &Path, code: u32) {
    driver_that(dir, &format!("return {code};"));
}

/// One whose `cuInit` does this.
fn driver_that(dir: &Path, acts: &str) {
    let source = format!(
        "#include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        int cuInit(unsigned flags) {{ {acts} }}
        int cuDriverGetVersion(int *version) {{ *version = 13000; return 0; }}
        int cuDeviceGetName(char *name, int size, int card) {{ strncpy(name, \"Toy H200\", size); return 0; }}
        int cuDeviceGetAttribute(int *value, int which, int card) {{ *value = which == 75 ? 9 : 0; return 0; }}"
    );
    cc(dir, &source, &["-shared", "-fPIC", "-o", "libcuda.so.1"]);
}

/// What `try-cuda` finds with these libraries in the loader's path.
fn found(dir: &Path, libraries: &[&str]) -> Value {
    let toy = Toy::no_repository().env("LD_LIBRARY_PATH", dir.to_str().unwrap());
    toy.exits(0, &[&["try-cuda"], libraries].concat()).json()
}

#[test]
fn a_driver_is_asked_for_its_card() {
    let dir = tempfile::tempdir().unwrap();
    driver(dir.path(), 0);
    cc(dir.path(), "int x;", &["-shared", "-fPIC", "-o", "libcublas.so.13"]);
    let found = found(dir.path(), &["libcublas.so.13"]);
    assert_eq!(found["missing"], serde_json::json!([]));
    assert_eq!((&found["code"], &found["driver"]), (&0.into(), &13_000.into()));
    assert_eq!((&found["name"], &found["capability"]), (&"Toy H200".into(), &serde_json::json!([9, 0])));
}

#[test]
fn a_driver_that_prints_does_not_garble_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    // written at once, and kept by stdio until the end; neither ends its line
    driver_that(dir.path(), "if (write(1, \"{first\", 6)) printf(\"last\"); return 0;");
    let toy = Toy::no_repository().env("LD_LIBRARY_PATH", dir.path().to_str().unwrap());
    let said = toy.exits(0, &["try-cuda"]).stdout;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines[0], lines[2], lines.len()), ("{first", "last", 3), "{said}");
    assert_eq!(serde_json::from_str::<Value>(lines[1]).unwrap()["name"], "Toy H200");
}

#[test]
fn a_library_that_is_missing_or_no_library_is_found_out_by_loading_it() {
    let dir = tempfile::tempdir().unwrap();
    driver(dir.path(), 803);
    std::fs::write(dir.path().join("libcurand.so.10"), "not ELF").unwrap();
    // one that needs another, as cuBLAS needs cublasLt
    cc(dir.path(), "int lt;", &["-shared", "-fPIC", "-Wl,-soname,libcublasLt.so.13", "-o", "libcublasLt.so"]);
    cc(
        dir.path(),
        "extern int lt; int x(void) { return lt; }",
        &["-shared", "-fPIC", "-o", "libcublas.so.13", "-lcublasLt"],
    );
    let found = found(dir.path(), &["libcublas.so.13", "libcurand.so.10"]);
    assert_eq!(found["code"], 803);
    let missing = found["missing"].as_array().unwrap();
    let says = |index: usize, words: &str| missing[index].as_str().unwrap().contains(words);
    assert!(says(0, "libcublas.so.13: libcublasLt.so.13: cannot open"), "{missing:?}");
    assert!(says(1, "libcurand.so.10"), "{missing:?}");
    assert_eq!(missing.len(), 2);
}

#[test]
fn a_driver_without_its_functions_is_none() {
    let dir = tempfile::tempdir().unwrap();
    cc(dir.path(), "int x;", &["-shared", "-fPIC", "-o", "libcuda.so.1"]);
    let found = found(dir.path(), &[]);
    assert!(found["missing"][0].as_str().unwrap().starts_with("libcuda.so.1: "), "{found}");
}

/// The toy, scored by a script.
fn scored_by(script: &str) -> Toy {
    let toy = Toy::new();
    toy.write("score.sh", script);
    toy.commit("a score of its own");
    toy
}

#[test]
fn a_program_whose_library_is_gone_crashes_with_the_loaders_words() {
    let toy = scored_by("[ -e \"$1/gone\" ] && exec \"$1/program\"; echo '{\"loss\": 1.0}'\n").init();
    let dir = toy.root();
    cc(dir, "int x = 1;", &["-shared", "-fPIC", "-Wl,-soname,libcublas.so.13", "-o", "libcublas.so"]);
    cc(dir, "extern int x; int main(void) { return x; }", &["-o", "program", "-lcublas"]);
    toy.attempt("9"); // the baseline, and one that scores
    toy.write("gone", "");
    let line = toy.attempt("8");
    assert_eq!((&line["status"], &line["outcome"]), (&"crash".into(), &"library_missing".into()), "{line}");
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.contains("libcublas.so.13: cannot open") && reason.contains("ratchet doctor"), "{reason}");
}

#[test]
fn a_gpu_without_memory_is_a_crash_for_lack_of_memory() {
    let toy = scored_by(
        "case \"$(cat cand/x.txt)\" in
          *9*) echo 'error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")' >&2; exit 1 ;;
          *8*) echo 'Error: CublasError(CUBLAS_STATUS_ALLOC_FAILED)' >&2; exit 1 ;;
          *7*) echo 'error: CUBLAS_STATUS_EXECUTION_FAILED' >&2; exit 1 ;;
        esac
        echo '{\"loss\": 1.0}'\n",
    )
    .init();
    for (x, outcome) in [("9", "out_of_memory"), ("8", "out_of_memory"), ("7", "score_failed")] {
        let line = toy.attempt(x);
        assert_eq!((&line["status"], &line["outcome"]), (&"crash".into(), &outcome.into()), "{line}");
        let reason = line["reason"].as_str().unwrap();
        assert!(reason.contains("CU") && !reason.contains('\n'), "the device's own words: {reason}");
    }
}
