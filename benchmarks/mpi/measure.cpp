#include "mpi/measure.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace hvd::benchmark {

namespace {

// Several blocks are measured: an interruption of a rank spoils one block, not the whole round.
constexpr int blocks_back_to_back = 9;
constexpr double work_s = 0.002;

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void do_other_arithmetic(double end_s) {
  static std::vector<float> a(16 << 10, 1.0f), b(16 << 10, 0.5f);
  while (now_s() < end_s)
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] * 0.999f + b[i];
}

std::string object(const std::map<std::string, std::string>& fields) {
  std::string text = "{";
  for (const auto& [name, value] : fields) text += (text.size() > 1 ? ", " : "") + json(name) + ": " + value;
  return text + "}";
}

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string json(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

std::string json(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

std::string json(const std::vector<double>& numbers) {
  std::string text = "[";
  for (double number : numbers) text += (text.size() > 1 ? ", " : "") + json(number);
  return text + "]";
}

Recorder::Recorder(Job& job, const std::string& path, std::map<std::string, std::string> common)
    : job_(job), common_(std::move(common)) {
  if (job.rank() == 0) {
    file_ = path == "-" ? stdout : std::fopen(path.c_str(), "a");
    if (file_ == nullptr) job.fail("cannot write to " + path);
  }
  common_["ranks"] = json(job.size());
}

Recorder::~Recorder() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void Recorder::write_line(const std::map<std::string, std::string>& fields) {
  if (file_ == nullptr) return;
  std::map<std::string, std::string> all = common_;
  all.insert(fields.begin(), fields.end());
  std::fprintf(file_, "%s\n", object(all).c_str());
  std::fflush(file_);
}

void Recorder::note(const std::map<std::string, std::string>& description,
                    const std::map<std::string, std::vector<double>>& values) {
  auto fields = description;
  for (const auto& [name, numbers] : values) {
    std::vector<double> largest(numbers.size());
    MPI_Allreduce(numbers.data(), largest.data(), static_cast<int>(numbers.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    fields[name] = json(largest);
  }
  write_line(fields);
}

int Recorder::calls_per_round(const Workload& workload, const Contender& contender, const Effort& effort) {
  double per_call = 0;
  for (int calls : {2, 50}) {
    job_.barrier();
    double begin = now_s();
    for (int i = 0; i < calls; ++i) contender.call();
    double mine = (now_s() - begin) / calls;
    MPI_Allreduce(&mine, &per_call, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (per_call > 1e-4) break;
  }
  // The time for rewriting and for waiting for each other is about equal to the time of a call.
  if (!workload.back_to_back) per_call = 2 * per_call + 1e-6;
  if (workload.after_work) per_call += work_s;
  return std::clamp(static_cast<int>(effort.seconds / per_call), effort.fewest_calls, effort.most_calls);
}

double Recorder::time_of(const Workload& workload, const Contender& contender, int calls) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(calls));
  if (workload.back_to_back) {
    int in_block = (calls + blocks_back_to_back - 1) / blocks_back_to_back;
    job_.barrier();
    for (int block = 0; block < blocks_back_to_back; ++block) {
      double begin = now_s();
      for (int i = 0; i < in_block; ++i) contender.call();
      times.push_back((now_s() - begin) / in_block);
    }
    return median(std::move(times));
  }
  for (int i = 0; i < calls; ++i) {
    workload.write(i);
    if (workload.after_work) do_other_arithmetic(job_.barrier_until(now_s() + work_s));
    else job_.barrier();
    double begin = now_s();
    contender.call();
    times.push_back(now_s() - begin);
  }
  return median(std::move(times));
}

void Recorder::measure(const Workload& workload, const Effort& effort) {
  std::size_t count = workload.contenders.size();
  std::vector<int> calls(count), right(count, 1);
  for (std::size_t k = 0; k < count; ++k) {
    const Contender& contender = workload.contenders[k];
    if (contender.begin) contender.begin();
    for (int turn = 0; turn < 2; ++turn) {
      workload.write(turn);
      job_.barrier();
      contender.call();
      if (workload.is_right && !workload.is_right(turn)) right[k] = 0;
      job_.barrier();
    }
    workload.write(zeros);
    calls[k] = calls_per_round(workload, contender, effort);
    if (contender.end) contender.end();
  }
  std::vector<std::vector<double>> times(count, std::vector<double>(static_cast<std::size_t>(effort.rounds)));
  for (int round = 0; round < effort.rounds; ++round) {
    for (std::size_t place = 0; place < count; ++place) {
      std::size_t k = (place + static_cast<std::size_t>(round)) % count;
      const Contender& contender = workload.contenders[k];
      if (workload.back_to_back) workload.write(zeros);
      if (contender.begin) contender.begin();
      times[k][static_cast<std::size_t>(round)] = time_of(workload, contender, calls[k]) * 1e6;
      if (contender.end) contender.end();
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, right.data(), static_cast<int>(count), MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  std::map<std::string, std::string> microseconds, correct;
  for (std::size_t k = 0; k < count; ++k) {
    MPI_Allreduce(MPI_IN_PLACE, times[k].data(), effort.rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    microseconds[workload.contenders[k].name] = json(times[k]);
    correct[workload.contenders[k].name] = right[k] != 0 ? "true" : "false";
  }
  auto fields = workload.description;
  fields["us"] = object(microseconds);
  fields["correct"] = object(correct);
  write_line(fields);
}

}  // namespace hvd::benchmark
