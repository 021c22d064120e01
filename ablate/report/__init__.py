"""Records of a study -> `reports/<study>/`: a page for people, tables for programs, figures."""
