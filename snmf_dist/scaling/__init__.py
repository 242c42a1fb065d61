"""How time, memory and traffic grow: a study of many sizes, and the cost model that it gives."""
