// The wire format of protocol buffers, as far as messages of integers and messages need it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap {

// Reads one message; its parts are read by readers of their own.
class ProtoReader {
 public:
  // offset: where `bytes` lies in the whole, for errors. `what` names that.
  ProtoReader(std::string_view bytes, const char* what, std::size_t offset = 0)
      : bytes_(bytes), what_(what), offset_(offset) {}

  enum WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  struct Field {
    std::uint32_t number = 0;
    WireType wire = varint;
    std::uint64_t value = 0;  // of a varint
    std::string_view part;    // of bytes
    std::size_t offset = 0;   // of the part
    std::string_view whole;   // tag and all
  };
  // The next field; false at the end. ValueError with the offset where it is none.
  bool next(Field* field);
  // The next varint of a packed list.
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
