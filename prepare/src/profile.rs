//! Profiles: context, budgets and exam sizes, chosen once per run.
