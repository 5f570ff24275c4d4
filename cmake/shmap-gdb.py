"""How gdb prints shmap::Array: type, sharding and values.

gdb reads this file when it loads libshmap. An array is described by the library itself
(shmap_describe_array), which is called in the program that is debugged: the library needs no debug
information, and the program has to be alive, so a core file shows the address alone.
"""

import gdb
import gdb.printing


class ArrayPrinter:
    """One line with type, spec and mesh; the values on the lines below."""

    def __init__(self, value):
        self.node = int(value["node_"])

    def to_string(self):
        if self.node == 0:
            return "<empty Array>"
        try:
            text = gdb.parse_and_eval(
                "((const char *(*)(const void *)) shmap_describe_array)((const void *) %d)" % self.node)
            # The text is UTF-8, and may be longer than gdb shows of a string by itself.
            return text.string("utf-8")
        except (gdb.error, gdb.MemoryError, UnicodeDecodeError) as error:
            return "<Array at 0x%x: %s>" % (self.node, error)


def printer():
    """The printers of one libshmap."""
    printers = gdb.printing.RegexpCollectionPrettyPrinter("shmap")
    printers.add_printer("shmap::Array", "^shmap::Array$", ArrayPrinter)
    return printers


gdb.printing.register_pretty_printer(gdb.current_objfile(), printer(), replace=True)
