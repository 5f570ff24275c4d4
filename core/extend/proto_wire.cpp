#include "core/extend/proto_wire.h"

#include "shmap/error.h"

namespace shmap {

void ProtoReader::fail(const char* problem) const {
  throw ValueError(std::string(what_) + ": byte " + std::to_string(offset_ + at_) + ": " + problem);
}

std::uint64_t ProtoReader::read_varint() {
  std::uint64_t v = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == bytes_.size()) fail("the message ends within a number");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    if (shift == 63 && byte > 1) fail("a number of more than 64 bits");
    v |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
    if ((byte & 0x80u) == 0) return v;
  }
  fail("a number of more than 64 bits");
}

bool ProtoReader::next_varint(std::uint64_t* value) {
  if (at_ == bytes_.size()) return false;
  *value = read_varint();
  return true;
}

bool ProtoReader::next(Field* field) {
  if (at_ == bytes_.size()) return false;
  const std::size_t begin = at_;
  const std::uint64_t tag = read_varint();
  const auto wire = static_cast<std::uint8_t>(tag & 7u);
  if (tag >> 3 == 0 || tag >> 32 != 0) fail("a field has an invalid number");
  *field = {};
  field->number = static_cast<std::uint32_t>(tag >> 3);
  const auto take = [&](std::uint64_t n) {
    if (n > bytes_.size() - at_) fail("a field is longer than what is left of the message");
    field->offset = offset_ + at_;
    field->part = bytes_.substr(at_, static_cast<std::size_t>(n));
    at_ += static_cast<std::size_t>(n);
  };
  switch (wire) {
    case varint:
      field->value = read_varint();
      break;
    case bytes:
      take(read_varint());
      break;
    case fixed64:
      take(8);
      break;
    case fixed32:
      take(4);
      break;
    default:
      fail("a field of an unknown wire type");
  }
  field->wire = static_cast<WireType>(wire);
  field->whole = bytes_.substr(begin, at_ - begin);
  return true;
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80u; value >>= 7) out += static_cast<char>((value & 0x7fu) | 0x80u);
  out += static_cast<char>(value);
}

void append_tag(std::string& out, std::uint32_t field, ProtoReader::WireType wire) {
  append_varint(out, std::uint64_t{field} << 3 | wire);
}

void append_bytes(std::string& out, std::uint32_t field, std::string_view part) {
  append_tag(out, field, ProtoReader::bytes);
  append_varint(out, part.size());
  out += part;
}

}  // namespace shmap
