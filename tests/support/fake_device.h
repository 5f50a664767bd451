// A device that is not the host, made of the host: what the engine does with one can be compared
// bit for bit with what it does on the CPU, on any machine. It is as strict as a real one. Its
// memory cannot be touched from outside (it is mapped without any access while no work is done),
// staging starts as garbage, work is only noted while it is recorded and done when somebody waits
// for it.
#pragma once

#include <functional>

#include "ulp/backend/kernel.h"
#include "ulp/tensor/device.h"

namespace ulp::fake_device {

// The CPU's kernels on that device; it checks steps for overflow by itself.
const Backend& backend();
// Adds it under its name, "fake", to those that find_backend knows; once.
void add();

// To be called while the stream is recorded, as a kernel would be launched.
void launch(Stream stream, std::function<void()> work);
// Recordings that were launched up to now.
size_t launches();

// While it lives the device has so many bytes more than are in use, and says so where it is asked;
// or keeps silent about it, so that only a request shows it.
class Shortage {
 public:
  explicit Shortage(size_t bytes, bool told = true);
  ~Shortage();
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
};

}  // namespace ulp::fake_device
