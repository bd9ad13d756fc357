//! Writes a report to look at: `cargo run --release -p report --example nights -- OUT [night | hostile | N]`, where
//! `night` is one as it comes, `hostile` has 40 trials of 10 kB, and N is a number of hostile trials. Prints times.

use std::time::Instant;
use std::{env, fs, path::PathBuf};

#[path = "../tests/nights.rs"]
mod nights;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args().skip(1);
    let out = PathBuf::from(args.next().ok_or("where to? give a folder")?);
    let night = match args.next().as_deref() {
        None | Some("night") => nights::night(),
        Some("hostile") => nights::hostile(40, true),
        Some(count) => nights::hostile(count.parse()?, false),
    };
    fs::create_dir_all(&out)?;
    let begin = Instant::now();
    let page = report::html(&night);
    let html = begin.elapsed();
    let drawing = report::progress_svg(&night);
    let svg = begin.elapsed() - html;
    let pixels = report::progress_png(&night)?;
    let png = begin.elapsed() - html - svg;
    println!("{} trials", night.trials.len());
    println!("report.html   {:>9} bytes {html:>9.1?}", page.len());
    println!("progress.svg  {:>9} bytes {svg:>9.1?}", drawing.len());
    println!("progress.png  {:>9} bytes {png:>9.1?}", pixels.len());
    fs::write(out.join("report.html"), page)?;
    fs::write(out.join("progress.svg"), drawing)?;
    fs::write(out.join("progress.png"), pixels)?;
    Ok(())
}
