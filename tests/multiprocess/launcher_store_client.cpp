// A rank that uses only the store of horovodrun. "meet": every rank gets the values of all other ranks. "abort": asks
// for the end of the job.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/settings/environment.hpp"
#include "bootstrap/store/local_store.hpp"

using namespace hvd;

namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int, char** arguments) {
  Environment environment = Environment::of_this_process();
  auto get = [&](const char* name) { return environment.get(name).value_or(""); };
  Rank rank{std::atoi(get("HOROVOD_RANK").c_str())};
  int size = std::atoi(get("HOROVOD_SIZE").c_str());
  Deadline deadline = Deadline::after(std::chrono::seconds(30));
  auto client = bootstrap::LocalStoreClient::join(get(bootstrap::local_store::address_variable),
                                                  get(bootstrap::local_store::secret_variable), rank, size, deadline);
  if (!client) return fail(client.error());
  if (std::string(arguments[1]) == "abort") {
    (*client)->abort("no more work");
    return 0;
  }
  std::string mine = "value of " + std::to_string(rank.value);
  if (auto put = (*client)->put("key", as_bytes(mine), deadline); !put) return fail(put.error());
  if (auto fenced = (*client)->fence(deadline); !fenced) return fail(fenced.error());
  for (int other = 0; other < size; ++other) {
    auto value = (*client)->get(Rank{other}, "key", deadline);
    if (!value) return fail(value.error());
    if (to_string(*value) != "value of " + std::to_string(other)) return 2;
  }
  return 0;
}
