"""late_load.py PLUGIN: loads and runs the plugin, as late_load.c does."""
import ctypes
import sys

plugin = ctypes.CDLL(sys.argv[1])
sums = plugin.plugin_run()
wanted = 3 * 64 * 64 * 64
if sums != wanted:
    sys.exit(f"plugin_run gave {sums} and not {wanted}")
print("loaded late and right")
