// Draws a program, as to_string prints it, as a graph for Graphviz:
//
//   program_to_dot program.txt | dot -Tsvg -o program.svg
//
// An equation is a box and an edge is a value, labelled with its type. Programs inside of equations
// are frames, and a frame whose arguments have other types inside (those of blocks) begins with
// these types; collectives that move data are orange, products green. Text before and after the
// program in the file is skipped, so that the file may be one that SHMAP_DUMP wrote. Without a
// file, it reads standard input; with --example, it draws an example program.
#include <shmap/shmap.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace shmap;

const std::set<std::string> moving = {"psum",
                                      "pmax",
                                      "pmin",
                                      "all_gather",
                                      "ppermute",
                                      "psum_scatter",
                                      "all_to_all",
                                      "broadcast_from",
                                      "all_reduce",
                                      "pswapaxes",
                                      "all_gather_invariant"};
const std::set<std::string> products = {"dot_general", "all_gather_einsum", "einsum_psum_scatter",
                                        "all_to_all_einsum"};

std::string quoted(const std::string& text) {
  std::string s = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += c;
  }
  return s + "\"";
}

template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

class Graph {
 public:
  explicit Graph(const ClosedJaxpr& program) {
    std::vector<std::string> arguments;
    for (const extend::Var& v : extend::in_vars(program)) {
      arguments.push_back(node(text_of(v.type()), "ellipse", "#e8eef7"));
    }
    const std::vector<std::string> results = draw(program, arguments);
    const std::vector<extend::Atom> atoms = extend::out_atoms(program);
    for (std::size_t k = 0; k < results.size(); ++k) {
      edge(results[k], node("result", "ellipse", "#e8eef7"), text_of(atoms[k].type()));
    }
  }

  std::string text() const {
    return "digraph program {\n  node [fontname=\"sans-serif\" fontsize=11 style=filled "
           "height=0.3];\n"
           "  edge [fontname=\"sans-serif\" fontsize=9 color=\"#666666\"];\n"
           "  graph [fontname=\"sans-serif\" fontsize=11 compound=true];\n" +
           text_ + edges_ + "}\n";
  }

 private:
  std::string node(const std::string& label, const char* shape, const char* colour) {
    const std::string name = "n" + std::to_string(nodes_++);
    text_ += indent_ + name + " [label=" + quoted(label) + " shape=" + shape + " fillcolor=\"" +
             colour + "\"];\n";
    return name;
  }

  // Edges are written after all frames, since a node would belong to each frame that has one of its
  // edges.
  void edge(const std::string& from, const std::string& to, const std::string& label,
            bool dashed = false) {
    edges_ += "  " + from + " -> " + to + " [label=" + quoted(label) +
              (dashed ? " style=dashed" : "") + "];\n";
  }

  // Opens a frame around everything that is drawn until close().
  void open(const std::string& label) {
    text_ += indent_ + "subgraph cluster" + std::to_string(clusters_++) + " {\n";
    indent_ += "  ";
    text_ += indent_ + "label=" + quoted(label) + "; color=\"#999999\"; style=rounded;\n";
  }
  void close() {
    indent_.resize(indent_.size() - 2);
    text_ += indent_ + "}\n";
  }

  // The name of an equation, with a collective's mesh axes, and with the literals among its
  // inputs.
  static std::string title(const extend::Eqn& e) {
    std::string s = e.primitive().name();
    for (const char* name : {"axes", "axis_name"}) {
      if (!moving.contains(s) || !e.params().contains(name)) continue;
      for (const std::string& axis : e.param<std::vector<std::string>>(name)) s += " " + axis;
      break;
    }
    for (const extend::Atom& a : e.inputs())
      if (a.is_literal()) s += " " + to_string(a.literal().value());
    return s;
  }

  // Draws the equations of a program whose arguments come from these nodes. Returns the nodes of
  // its results.
  std::vector<std::string> draw(const ClosedJaxpr& program,
                                const std::vector<std::string>& arguments) {
    std::map<extend::Var, std::string> made;
    const std::vector<extend::Var> inputs = extend::in_vars(program);
    for (std::size_t k = 0; k < inputs.size(); ++k) made[inputs[k]] = arguments[k];
    for (const extend::Var& v : extend::constvars(program))
      made[v] = node("constant " + text_of(v.type()), "ellipse", "#eeeeee");

    for (const extend::Eqn& e : extend::eqns(program)) {
      const std::vector<ClosedJaxpr> inside = e.sub_jaxprs();
      const std::vector<extend::Atom> operands = e.inputs();
      const std::vector<extend::Var> outputs = e.outputs();
      if (inside.size() == 1 && is_call(inside[0], e)) {
        open(title(e));
        const std::vector<extend::Var> blocks = extend::in_vars(inside[0]);
        const bool in_blocks = differ(operands, blocks);
        std::vector<std::string> from;
        for (std::size_t k = 0; k < operands.size(); ++k) {
          const extend::Atom& a = operands[k];
          from.push_back(a.is_literal() ? node(to_string(a.literal().value()), "plaintext", "white")
                                        : made.at(a.var()));
          if (a.is_literal() || !in_blocks) continue;
          const std::string block = node(text_of(blocks[k].type()), "plaintext", "white");
          blocks_.insert(block);
          edge(from.back(), block, "");
          from.back() = block;
        }
        const std::vector<std::string> results = draw(inside[0], from);
        close();
        for (std::size_t k = 0; k < outputs.size(); ++k) made[outputs[k]] = results[k];
        continue;
      }
      const std::string name = e.primitive().name();
      const std::string box = node(title(e), "box",
                                   moving.contains(name)     ? "#fdc086"
                                   : products.contains(name) ? "#a6d8a8"
                                                             : "#f4f4f4");
      for (const extend::Atom& a : operands) {
        if (a.is_literal()) continue;
        const std::string& from = made.at(a.var());
        edge(from, box, blocks_.contains(from) ? "" : text_of(a.type()));
      }
      for (std::size_t k = 0; k < inside.size(); ++k) draw_body(inside[k], box, k, inside.size());
      for (const extend::Var& v : outputs) made[v] = box;
    }

    std::vector<std::string> results;
    for (const extend::Atom& a : extend::out_atoms(program)) {
      results.push_back(a.is_literal() ? node(to_string(a.literal().value()), "plaintext", "white")
                                       : made.at(a.var()));
    }
    return results;
  }

  // Draws the body of a loop, or a branch: a frame to which a dashed edge leads.
  void draw_body(const ClosedJaxpr& body, const std::string& box, std::size_t k,
                 std::size_t count) {
    open(count == 1 ? "body" : "program " + std::to_string(k));
    std::vector<std::string> arguments;
    for (const extend::Var& v : extend::in_vars(body))
      arguments.push_back(node(text_of(v.type()), "ellipse", "#e8eef7"));
    const std::vector<std::string> results = draw(body, arguments);
    const std::vector<extend::Atom> atoms = extend::out_atoms(body);
    for (std::size_t r = 0; r < results.size(); ++r)
      edge(results[r], node("result", "ellipse", "#e8eef7"), text_of(atoms[r].type()));
    close();
    if (!arguments.empty()) edge(box, arguments[0], "", true);
  }

  // True if an argument has another type inside of its frame, as blocks have in shard_map.
  static bool differ(const std::vector<extend::Atom>& operands,
                     const std::vector<extend::Var>& inside) {
    for (std::size_t k = 0; k < operands.size(); ++k)
      if (text_of(operands[k].type()) != text_of(inside[k].type())) return true;
    return false;
  }

  // True if the equation runs the program once, on its own operands: jit, shard_map.
  static bool is_call(const ClosedJaxpr& inside, const extend::Eqn& e) {
    static const std::set<std::string> others = {"scan", "while", "cond", "fori"};
    return !others.contains(e.primitive().name()) &&
           extend::in_vars(inside).size() == e.inputs().size() &&
           extend::out_atoms(inside).size() == e.outputs().size();
  }

  std::string text_, edges_, indent_ = "  ";
  std::set<std::string> blocks_;  // nodes that are the types of arguments inside of a frame
  int nodes_ = 0, clusters_ = 0;
};

// Returns the text from the first "{ lambda" to the brace that closes it.
std::string first_program(const std::string& text) {
  const std::size_t begin = text.find("{ lambda");
  if (begin == std::string::npos) throw ValueError("there is no program: \"{ lambda\" is wanted");
  int depth = 0;
  for (std::size_t k = begin; k < text.size(); ++k) {
    if (text[k] == '{') ++depth;
    if (text[k] == '}' && --depth == 0) return text.substr(begin, k + 1 - begin);
  }
  throw ValueError("the program has no end: a \"}\" is missing");
}

// The programs of the pictures in the docs.
auto example() {
  Mesh mesh = make_mesh({4}, {"i"});
  return jit(shard_map(
      [](Array x, Array w) {
        Array next = ppermute(x, "i", ring_permutation("i"));
        return psum(tanh(matmul(next, w)) + matmul(x, w), "i");
      },
      mesh, {P("i"), P()}, P()));
}

int main(int argc, char** argv) {
  try {
    const std::string name = argc > 1 ? argv[1] : "-";
    if (argc > 2 || name == "--help") {
      std::cerr << "usage: program_to_dot [FILE | --example | --plan]\n";
      return 2;
    }
    if (name == "--example") {
      std::cout << Graph(make_jaxpr(example())(ShapedArray({8, 4}, f32), ShapedArray({4, 4}, f32)))
                       .text();
      return 0;
    }
    if (name == "--plan") {
      auto f = example();
      for (int k = 0; k < 3; ++k) f(ones({8, 4}), ones({4, 4}));  // captured at the second call
      std::cout << f.plan_text();
      return 0;
    }
    std::ifstream file(name);
    if (name != "-" && !file) throw ValueError("cannot read " + name);
    std::istream& in = name == "-" ? std::cin : file;
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::cout << Graph(extend::parse_jaxpr(first_program(text))).text();
  } catch (const Error& error) {
    std::cerr << "program_to_dot: " << error.what() << "\n";
    return 1;
  }
}
