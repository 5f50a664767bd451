// Scalars for TensorBoard: its event files, written without TensorFlow.
//
// A file is TFRecords (length and content, each with a masked CRC-32C), and a record is an `Event`
// of TensorFlow's event.proto: first the version, then one event a scalar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ulp {

// CRC-32C (Castagnoli), as in iSCSI: of "123456789" it is 0xE3069283.
uint32_t crc32c(std::span<const uint8_t> bytes);

// Makes events.out.tfevents.<seconds>.<hostname>.<pid> in a folder, and the folder if it is not
// there. Never touches a file that was there before: where the name is taken, the seconds are the
// next free ones, so that TensorBoard, which goes by name, reads a resumed run after the one it
// resumes. Whatever cannot be written is an Error; the records stay whole, and a later flush goes
// on where it stopped.
class EventWriter {
 public:
  explicit EventWriter(const std::string& dir);
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;
  // Flushes as far as that goes: an Error would have no way out.
  ~EventWriter();

  // NaN and infinities are written as they are. The tag must be UTF-8; "loss/train" is shown as
  // train under loss. wall_time is in seconds since 1970.
  void scalar(std::string_view tag, uint64_t step, float value, double wall_time);

  // Hands everything to the system, so that a kill loses none of it. Without it that happens every
  // 64 KiB.
  void flush();

  const std::string& path() const { return path_; }

 private:
  void append_record(std::string_view event);

  std::string path_;
  int fd_ = -1;
  std::string pending_;
};

// Takes the event files of a folder back to the scalars that `keeps` says yes to, for a run that
// resumes. A torn record at the end of a file goes too. Each file is replaced atomically, or left
// alone if nothing of it goes. Throws an Error for a file that is damaged elsewhere.
void cut_events(const std::string& dir,
                const std::function<bool(std::string_view tag, uint64_t step)>& keeps);

}  // namespace ulp
