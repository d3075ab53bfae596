#include "tally/io/render.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tally/io/atomic_file.h"
#include "tally/io/text.h"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

// The first executable `program` on PATH; "" when there is none.
std::string FindProgram(const std::string& program) {
  const char* path = std::getenv("PATH");
  if (path == nullptr) return "";
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    if (folder.empty()) continue;
    const std::string file = absl::StrCat(folder, "/", program);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

class Pipe {
 public:
  Pipe() : ok_(pipe2(ends_, O_CLOEXEC) == 0) {}
  ~Pipe() {
    Close(0);
    Close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool ok() const { return ok_; }
  int end(int i) const { return ends_[i]; }
  void Close(int i) {
    if (ends_[i] >= 0) close(ends_[i]);
    ends_[i] = -1;
  }
  void DoNotBlock(int i) { fcntl(ends_[i], F_SETFL, fcntl(ends_[i], F_GETFL) | O_NONBLOCK); }

 private:
  int ends_[2] = {-1, -1};
  bool ok_;
};

// A child that is fed its input and whose output and errors are read, all within a time.
class Child {
 public:
  Child(absl::string_view input, Clock::time_point deadline) : input_(input), deadline_(deadline) {}
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  absl::Status Start(const std::string& file, const std::vector<std::string>& arguments) {
    if (!in_.ok() || !out_.ok() || !error_.ok())
      return absl::InternalError(absl::StrCat("render: no pipe: ", std::strerror(errno)));
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0)
      return absl::InternalError(
          absl::StrCat("render: cannot start ", file, ": ", std::strerror(errno)));
    if (pid_ == 0) {  // only calls that are safe after fork
      dup2(in_.end(0), STDIN_FILENO);
      dup2(out_.end(1), STDOUT_FILENO);
      dup2(error_.end(1), STDERR_FILENO);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      execv(file.c_str(), argv.data());
      _exit(127);
    }
    in_.Close(0);
    out_.Close(1);
    error_.Close(1);
    in_.DoNotBlock(1);
    out_.DoNotBlock(0);
    error_.DoNotBlock(0);
    return absl::OkStatus();
  }

  // False when the time is over. Then the child still runs; the destructor kills it.
  bool Talk() {
    while (in_.end(1) >= 0 || out_.end(0) >= 0 || error_.end(0) >= 0) {
      const int wait = MillisecondsLeft();
      if (wait <= 0) return false;
      pollfd polls[] = {
          {in_.end(1), POLLOUT, 0}, {out_.end(0), POLLIN, 0}, {error_.end(0), POLLIN, 0}};
      if (poll(polls, 3, wait) < 0 && errno != EINTR) return false;
      if (polls[0].revents != 0) Feed();
      if (polls[1].revents != 0) Read(out_, output, SIZE_MAX);
      if (polls[2].revents != 0) Read(error_, errors, 4096);
    }
    return true;
  }

  // Waits for the end. False when the time is over.
  bool Wait(int* status) {
    while (true) {
      const pid_t done = waitpid(pid_, status, WNOHANG);
      if (done == pid_ || (done < 0 && errno == ECHILD)) {
        pid_ = -1;
        return true;
      }
      if (MillisecondsLeft() <= 0) return false;
      usleep(1000);
    }
  }

  std::string output, errors;

 private:
  int MillisecondsLeft() const {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }

  void Feed() {
    const ssize_t n = write(in_.end(1), input_.data(), input_.size());
    if (n > 0) input_.remove_prefix(n);
    const bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (input_.empty() || (n < 0 && !again)) in_.Close(1);
  }

  static void Read(Pipe& pipe, std::string& text, size_t limit) {
    char buffer[65536];
    const ssize_t n = read(pipe.end(0), buffer, sizeof buffer);
    if (n > 0 && text.size() < limit) text.append(buffer, n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) pipe.Close(0);
  }

  absl::string_view input_;
  const Clock::time_point deadline_;
  Pipe in_, out_, error_;
  pid_t pid_ = -1;
};

// A child that ends early must not end us too: its pipe then only fails. Restored afterwards.
class IgnorePipeSignal {
 public:
  IgnorePipeSignal() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~IgnorePipeSignal() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec now{};
    if (sigismember(&before_, SIGPIPE) == 0) {
      while (sigtimedwait(&pipe, nullptr, &now) > 0) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
};

// What `dot` makes of the text. kInternal: it failed, with what it said.
absl::StatusOr<std::string> RunDot(const std::string& program, const std::vector<std::string>& args,
                                   const std::string& dot, Clock::time_point deadline,
                                   double seconds) {
  Child child(dot, deadline);
  const absl::Status started = child.Start(program, args);
  if (!started.ok()) return started;
  int status = 0;
  if (!child.Talk() || !child.Wait(&status)) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "render: dot did not finish within %g s; fold more (--fold=depth:1), or draw less "
        "(--detail=matmul, --focus)",
        seconds));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || child.output.empty()) {
    const std::string how = WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                                : absl::StrCat("exit ", WEXITSTATUS(status));
    return absl::InternalError(
        absl::StrCat("render: dot failed (", how, "): ", Quoted(child.errors, 500)));
  }
  return std::move(child.output);
}

}  // namespace

const char* Name(RenderFormat format) {
  constexpr const char* kNames[] = {"svg", "pdf", "png"};
  return kNames[static_cast<int>(format)];
}

absl::Status RenderDot(const std::string& dot, const std::string& path, RenderFormat format,
                       double seconds) {
  const std::string program = FindProgram("dot");
  if (program.empty()) {
    return absl::NotFoundError(
        "render: there is no program 'dot' on PATH; install Graphviz (Debian: apt install "
        "graphviz), "
        "or keep the DOT file and draw it elsewhere");
  }
  const auto limit = std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e6));
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  const IgnorePipeSignal ignore;
  const std::string type = absl::StrCat("-T", Name(format));
  absl::StatusOr<std::string> picture = RunDot(program, {"dot", type}, dot, deadline, seconds);
  // Some graphs defeat its routing of curves around nodes ("triangulation failed"); straight edges
  // need none.
  if (picture.status().code() == absl::StatusCode::kInternal) {
    absl::StatusOr<std::string> straight =
        RunDot(program, {"dot", type, "-Gsplines=line"}, dot, deadline, seconds);
    if (straight.ok()) picture = std::move(straight);
  }
  if (!picture.ok()) return picture.status();
  return WriteFileAtomically(path, *picture);
}

}  // namespace tally
