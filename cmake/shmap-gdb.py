"""Makes gdb print shmap::Array as type, sharding and values, and shmap::Mesh as axes and devices.

gdb reads this file when it loads libshmap. An array is described by the library itself
(shmap_describe_array; a mesh by shmap_describe_mesh), which is called in the program that is debugged: the
library needs no debug information, and the program has to be alive, so a core file shows the address alone.
"""

import gdb
import gdb.printing


def described(function, address, kind):
    """The text of the library's function for the object at that address."""
    try:
        text = gdb.parse_and_eval(
            "((const char *(*)(const void *)) %s)((const void *) %d)" % (function, address))
        # The text is UTF-8, and may be longer than gdb shows of a string by itself.
        return text.string("utf-8")
    except (gdb.error, gdb.MemoryError, UnicodeDecodeError) as error:
        return "<%s at 0x%x: %s>" % (kind, address, error)


class ArrayPrinter:
    """Prints a line with type, spec and mesh, and the values on the lines below."""

    def __init__(self, value):
        self.node = int(value["node_"])

    def to_string(self):
        return described("shmap_describe_array", self.node, "Array") if self.node else "<empty Array>"


class MeshPrinter:
    """Prints a line with the axes, their sizes, and the devices."""

    def __init__(self, value):
        self.impl = int(value["impl_"])

    def to_string(self):
        return described("shmap_describe_mesh", self.impl, "Mesh") if self.impl else "<no Mesh yet>"


def printer():
    """The printers of one libshmap."""
    printers = gdb.printing.RegexpCollectionPrettyPrinter("shmap")
    printers.add_printer("shmap::Array", "^shmap::Array$", ArrayPrinter)
    printers.add_printer("shmap::Mesh", "^shmap::Mesh$", MeshPrinter)
    return printers


gdb.printing.register_pretty_printer(gdb.current_objfile(), printer(), replace=True)
