"""How exact: error figures, references in more precision, grades."""
