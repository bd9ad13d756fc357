// The kernels by name, and the door through which Rust launches them.
#include "cuda_on_cpu.h"

// `variant`: the one to take of kernels that have it. Order 0: first thread first, 1: last first, 2: at random by `seed`.
extern "C" int emulator_launch(const char* name, const char* variant, unsigned gx, unsigned gy, unsigned gz, unsigned threads, size_t shared,
                               const void* params, size_t params_size, int order, uint64_t seed, char* message,
                               size_t message_size) {
  emu::cfg = {(emu::Order)order, seed, 1};
  const emu::Kernel* kernel = emu::find(std::string(name) + variant);
  if (!kernel) kernel = emu::find(name);
  std::string all;
  if (!kernel) {
    all = std::string("no kernel named ") + name;
  } else if (kernel->params_size != params_size) {
    all = std::string(name) + " takes " + std::to_string(kernel->params_size) + " bytes of parameters, " +
          std::to_string(params_size) + " were given";
  } else if (threads > kernel->most_threads) {
    all = std::string(name) + " is bound to " + std::to_string(kernel->most_threads) + " threads a block, " +
          std::to_string(threads) + " were asked for";
  } else {
    emu::launch(dim3(gx, gy, gz), dim3(threads), shared, kernel->run, params);
    for (auto& e : emu::errors) all += e + "\n";
    if (emu::error_count > emu::errors.size()) all += std::to_string(emu::error_count) + " reports in all\n";
    emu::errors.clear();
    emu::error_count = 0;
  }
  size_t n = std::min(message_size - 1, all.size());
  memcpy(message, all.data(), n);
  message[n] = 0;
  return all.empty() ? 0 : 1;
}
