"""What tests of Roost and of its plug-ins share: builders and checks."""
