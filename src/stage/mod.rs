//! What runs when: probe, apply, and the later stages in the real root.
