//! Repositories as people have them: hooks, no name, linked worktrees, a detached head.

use std::process::Command;

use crate::toy::Toy;

#[test]
fn a_machine_where_git_knows_no_name_can_run() {
    let home = Toy::no_repository();
    let toy = Toy::new();
    toy.git(&["config", "--unset", "user.name"]);
    toy.git(&["config", "--unset", "user.email"]);
    let toy = toy
        .env("HOME", home.root().to_str().unwrap())
        .env("XDG_CONFIG_HOME", home.root().to_str().unwrap())
        .env("GIT_CONFIG_NOSYSTEM", "1");
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    assert_eq!(toy.rows().len(), 3);
}

#[test]
fn hooks_signing_and_filters_of_the_user_are_not_the_drivers() {
    let toy = Toy::new();
    for hook in ["pre-commit", "commit-msg", "post-checkout", "reference-transaction"] {
        toy.write(
            &format!(".git/hooks/{hook}"),
            "#!/bin/sh\ntouch \"$(git rev-parse --git-dir)/hook-ran\"\nexit 1\n",
        );
        let path = toy.path(&format!(".git/hooks/{hook}"));
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    toy.git(&["config", "commit.gpgsign", "true"]);
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    assert_eq!(toy.rows().len(), 3);
    assert!(!toy.path(".git/hook-ran").exists());
}

#[test]
fn a_detached_head_stays_where_it_is() {
    let toy = Toy::new();
    toy.git(&["checkout", "-q", "--detach"]);
    let head = toy.git(&["rev-parse", "HEAD"]);
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    assert_eq!(toy.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(toy.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "HEAD");
}

#[test]
fn a_linked_worktree_is_a_place_to_run() {
    let toy = Toy::new();
    toy.git(&["worktree", "add", "-q", "linked"]);
    let linked = toy.path("linked");
    let out = Command::new(env!("CARGO_BIN_EXE_ratchet"))
        .args(["run", "--trials", "3", "--tag", "bar"])
        .current_dir(&linked)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(linked.join("results.tsv").exists() && !toy.path("results.tsv").exists());
    assert_eq!(toy.git(&["for-each-ref", "refs/heads/ratchet"]).lines().count(), 1);
}

#[test]
fn a_folder_inside_the_repository_works_or_names_the_root() {
    let toy = Toy::new().init();
    let out = Command::new(env!("CARGO_BIN_EXE_ratchet"))
        .args(["status", "--json"])
        .current_dir(toy.path("cand"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() || out.status.code() == Some(2) && stderr.contains("-C"), "{stderr}");
}

#[test]
fn many_remotes_and_no_push() {
    let toy = Toy::new();
    let upstream = Toy::no_repository();
    let url = upstream.root().to_str().unwrap().to_owned();
    toy.git(&["init", "-q", "--bare", &url]);
    toy.git(&["remote", "add", "origin", &url]);
    toy.git(&["push", "-q", "-u", "origin", "main"]);
    toy.git(&["config", "push.default", "matching"]);
    toy.exits(0, &["run", "--trials", "4", "--tag", "bar"]);
    assert_eq!(toy.git(&["ls-remote", "--heads", "origin"]).lines().count(), 1, "never pushed");
}
