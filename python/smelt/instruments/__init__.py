"""What a user measures, looks at and operates with. `import smelt` loads nothing of it: each call and command loads
what it needs."""
