// A reader and writer of the wire format of protocol buffers, for messages of integers and
// messages.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap {

// Reads one message; a nested message is read by another reader.
class ProtoReader {
 public:
  // offset: the position of `bytes` in the whole input, which `what` names; for errors.
  ProtoReader(std::string_view bytes, const char* what, std::size_t offset = 0)
      : bytes_(bytes), what_(what), offset_(offset) {}

  enum WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  struct Field {
    std::uint32_t number = 0;
    WireType wire = varint;
    std::uint64_t value = 0;  // for a varint field
    std::string_view part;    // for a field of bytes
    std::size_t offset = 0;   // the position of `part` in the input
    std::string_view whole;   // the whole field with its tag
  };
  // Reads the next field; false at the end. ValueError, with the offset, where the bytes are
  // malformed.
  bool next(Field* field);
  // Reads the next varint of a packed list; false at the end.
  bool next_varint(std::uint64_t* value);

 private:
  std::uint64_t read_varint();
  [[noreturn]] void fail(const char* problem) const;

  std::string_view bytes_;
  const char* what_;
  std::size_t offset_, at_ = 0;
};

void append_varint(std::string& out, std::uint64_t value);
void append_tag(std::string& out, std::uint32_t field, ProtoReader::WireType wire);
void append_bytes(std::string& out, std::uint32_t field, std::string_view part);

}  // namespace shmap
