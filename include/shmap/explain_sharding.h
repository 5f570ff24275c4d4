// Why the values of a program of global arrays lie as they do when it is split over a mesh.
#pragma once
#include <string>

#include "shmap/jaxpr.h"

namespace shmap {

// A text for people: each argument, equation and result of the program with its spec, and below it
// what decided the spec (an argument's placement, an operand's dim, a constraint, the spec of a
// mapped function) and what is moved: which collective over which mesh axes, how many bytes each
// device hands to it, and why. Programs inside of equations (loops, branches, calls) are explained
// in their places; names are those that the program prints, simplified as jit simplifies it first.
//
// The mesh is the one on which the arguments of make_jaxpr lay, or the one that the program names
// (by a jit over a mesh, a shard_map, a constraint); it may be abstract. Arguments that were only
// types are taken to lie as the program takes them. Programs without a mesh, and those that work on
// several, are not split, and the text says so.
std::string explain_sharding(const ClosedJaxpr& jaxpr);

}  // namespace shmap
