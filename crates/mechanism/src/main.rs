//! The child alone: answers on stdin and stdout.

fn main() -> std::process::ExitCode {
    mechanism::serve()
}
