#include "core/extend/spec_text.h"

#include <charconv>
#include <utility>

#include "core/array/sharding.h"

namespace shmap {

namespace {

class Cursor {
 public:
  Cursor(ParamReader& reader, std::string_view name, const char* wanted)
      : reader_(reader), name_(name), text_(reader.text(name)), wanted_(wanted) {}

  void skip(std::string_view word) {
    if (!skip_if(word)) fail();
  }
  bool skip_if(std::string_view word) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  std::string quoted() {
    skip("'");
    std::string out;
    while (at_ < text_.size() && text_[at_] != '\'') {
      if (text_[at_] == '\\' && ++at_ == text_.size()) fail();
      out += text_[at_++];
    }
    skip("'");
    return out;
  }
  std::int64_t integer() {
    skip_if("");
    std::int64_t v = 0;
    const char* first = text_.data() + at_;
    const auto r = std::from_chars(first, text_.data() + text_.size(), v);
    if (r.ec != std::errc()) fail();
    at_ += static_cast<std::size_t>(r.ptr - first);
    return v;
  }
  // Reads the items of a list after its '('; a comma may follow the last item.
  template <class F>
  void items(F item) {
    if (skip_if(")")) return;
    for (;;) {
      item();
      if (skip_if(")")) return;
      skip(",");
      if (skip_if(")")) return;
    }
  }
  PartitionSpec spec() {
    skip("P(");
    std::vector<PartitionSpec::Entry> entries;
    items([&] {
      if (entries.size() >= static_cast<std::size_t>(kMaxRank)) fail();
      if (skip_if("none")) {
        entries.emplace_back(none);
      } else if (skip_if("(")) {
        std::vector<std::string> names;
        items([&] { names.push_back(quoted()); });
        entries.emplace_back(Axes(names));
      } else {
        entries.emplace_back(quoted());
      }
    });
    return PartitionSpec(std::move(entries));
  }
  void end() {
    skip_if("");
    if (at_ != text_.size()) fail();
  }
  [[noreturn]] void fail() const {
    reader_.fail("'" + std::string(name_) + "' is " + text_ + ": wanted " + wanted_);
  }

 private:
  ParamReader& reader_;
  std::string_view name_;
  std::string text_;
  const char* wanted_;
  std::size_t at_ = 0;
};

}  // namespace

PartitionSpec read_spec(ParamReader& reader, std::string_view name) {
  Cursor text(reader, name, "a spec, as P('i', none)");
  PartitionSpec spec = text.spec();
  text.end();
  return spec;
}

std::vector<PartitionSpec> read_specs(ParamReader& reader, std::string_view name) {
  Cursor text(reader, name, "a list of specs, as (P('i', none), P())");
  std::vector<PartitionSpec> specs;
  text.skip("(");
  text.items([&] { specs.push_back(text.spec()); });
  text.end();
  return specs;
}

MeshText read_mesh(ParamReader& reader, std::string_view name) {
  Cursor text(reader, name, "a mesh, as Mesh('i': 4, 'j': 2)");
  MeshText mesh;
  text.skip("Mesh(");
  text.skip_if("without axes");
  text.items([&] {
    mesh.names.push_back(text.quoted());
    text.skip(":");
    mesh.sizes.push_back(text.integer());
  });
  text.end();
  return mesh;
}

const detail::MeshImpl* mesh_of_text(ParamReader& r, const MeshText& text) {
  std::vector<std::int64_t> extents = text.sizes;
  if (extents.size() > 31) r.fail("'mesh' has more than 31 axes");
  const AbstractMesh abstract{Shape(extents), Axes(text.names)};
  if (!std::in_range<int>(abstract.size())) r.fail("'mesh' has more than 2^31 - 1 places");
  const detail::MeshImpl* given = r.scope().mesh;
  if (given && given->env() == abstract.env()) return given;
  if (abstract.size() <= static_cast<std::int64_t>(devices().size()))
    return make_mesh(Shape(extents), Axes(text.names)).impl();
  return detail::MeshImpl::abstract(abstract.env());
}

}  // namespace shmap
