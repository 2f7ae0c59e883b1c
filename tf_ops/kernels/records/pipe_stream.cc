#include "tf_ops/kernels/records/pipe_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "tf_ops/core/base/status.h"
#include "tf_ops/kernels/base/status_util.h"

extern char** environ;

namespace lodestar {
namespace {

using Clock = std::chrono::steady_clock;

// Placeholder of the file's path.
constexpr char kPath[] = "{path}";
constexpr int64_t kChunkBytes = 256 << 10;
constexpr size_t kKeptErrorBytes = 4 << 10;
constexpr size_t kPipeBytes = 64 << 10;
constexpr std::chrono::seconds kPatience(10);
// Poll timeouts in milliseconds, after which the process is checked for its
// exit.
constexpr int kFirstWait = 1;
constexpr int kLongestWait = 100;

// Returns the length of the UTF-8 character at `p`; 0 if it is invalid or not
// printable.
int64_t PrintableBytes(const unsigned char* p, const unsigned char* end) {
  if (*p < 0x80) return *p >= 0x20 && *p != 0x7f;
  const int64_t length = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
  if (*p < 0xc2 || *p > 0xf4 || end - p < length) return 0;
  for (int64_t i = 1; i < length; ++i) {
    if ((p[i] & 0xc0) != 0x80) return 0;
  }
  // Overlong encodings, surrogates, and code points beyond the last one.
  const bool overlong =
      (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90);
  const bool unassigned =
      (*p == 0xed && p[1] > 0x9f) || (*p == 0xf4 && p[1] > 0x8f);
  return overlong || unassigned ? 0 : length;
}

// Escapes characters that are not printable, since an error must be valid
// UTF-8.
std::string Printable(const std::string& text, bool quoted) {
  static const char kHex[] = "0123456789abcdef";
  std::string result;
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* const end = p + text.size();
  while (p < end) {
    const int64_t bytes = PrintableBytes(p, end);
    if (bytes == 0) {
      result += {'\\', 'x', kHex[*p >> 4], kHex[*p & 15]};
      ++p;
      continue;
    }
    if (quoted && (*p == '\'' || *p == '\\')) result += '\\';
    result.append(p, p + bytes);
    p += bytes;
  }
  return result;
}

std::string ListOf(const std::vector<std::string>& words) {
  std::string text = "[";
  for (const std::string& word : words) {
    if (text.size() > 1) text += ", ";
    text += "'" + Printable(word, /*quoted=*/true) + "'";
  }
  return text + "]";
}

// Joins the lines with bars.
std::string OneLine(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) {
      line.pop_back();
    }
    std::replace(line.begin(), line.end(), '\t', ' ');
    if (!line.empty()) {
      result += (result.empty() ? "" : " | ") + Printable(line, false);
    }
    begin = end + 1;
  }
  return result;
}

std::string ErrnoText(int error) {
  return std::generic_category().message(error);
}

// Owns a file descriptor; -1 for none.
class Fd {
 public:
  Fd() = default;
  ~Fd() { Reset(-1); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// Opens a pipe whose ends are not inherited. Returns 0 or an errno.
int OpenPipe(Fd* read_end, Fd* write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  read_end->Reset(ends[0]);
  write_end->Reset(ends[1]);
  for (Fd* end : {read_end, write_end}) {
    // If this process has closed one of the standard descriptors, the pipe must
    // not take its number, because the child's descriptors would conflict.
    if (end->get() > STDERR_FILENO) continue;
    const int moved = fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (moved < 0) return errno;
    end->Reset(moved);
  }
  return 0;
}

// Like write(), but without SIGPIPE if there is no reader.
ssize_t WriteWithoutSignal(int fd, const char* bytes, size_t size) {
  sigset_t sigpipe, pending, before;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
  const ssize_t written = write(fd, bytes, size);
  const int error = errno;
  if (written < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE)) {
    const timespec at_once = {0, 0};
    while (sigtimedwait(&sigpipe, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

bool IsTransient(int error) {
  return error == EINTR || error == EAGAIN || error == EWOULDBLOCK;
}

// The environment of this process, with a variable that keeps TensorFlow's log
// out of the stderr of a command that is a script of Lodestar (_startup.py).
std::vector<char*> Environment() {
  static char quiet[] = "LODESTAR_QUIET_START=1";
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.push_back(*entry);
  }
  if (std::getenv("LODESTAR_QUIET_START") == nullptr) {
    environment.push_back(quiet);
  }
  environment.push_back(nullptr);
  return environment;
}

// Starts `argv` in a new process group. Returns 0 or an errno.
int Spawn(const std::vector<std::string>& argv, int in, int out, int err,
          pid_t* pid) {
  std::vector<char*> words;
  for (const std::string& word : argv) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  int error = posix_spawn_file_actions_init(&files);
  if (error != 0) return error;
  posix_spawnattr_t attributes;
  error = posix_spawnattr_init(&attributes);
  if (error != 0) {
    posix_spawn_file_actions_destroy(&files);
    return error;
  }
  const auto run = [&error](int result) {
    if (error == 0) error = result;
  };
  run(posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO));
  run(posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO));
  run(posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO));
#if __GLIBC_PREREQ(2, 34)
  // TensorFlow opens files without close-on-exec.
  run(posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1));
#endif
  // The child would inherit blocked and ignored signals, such as SIGPIPE, which
  // Python ignores.
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGPIPE, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD,
                           SIGUSR1, SIGUSR2, SIGXFSZ}) {
    sigaddset(&defaults, signal);
  }
  run(posix_spawnattr_setsigmask(&attributes, &none));
  run(posix_spawnattr_setsigdefault(&attributes, &defaults));
  run(posix_spawnattr_setpgroup(&attributes, 0));
  run(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
                                                POSIX_SPAWN_SETSIGDEF |
                                                POSIX_SPAWN_SETPGROUP));
  // Avoids fork(), which would copy the page tables of a process with many
  // gigabytes of embeddings, and run code while other threads hold locks.
  if (error == 0) {
    error = posix_spawnp(pid, words[0], &files, &attributes, words.data(),
                         Environment().data());
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// One thread both feeds and reads the process, so that neither pipe can fill up
// and block.
class PipeStream : public ByteStream {
 public:
  // `input`: null for none.
  PipeStream(std::string name, int cancelled, std::unique_ptr<ByteStream> input)
      : name_(std::move(name)),
        cancelled_(cancelled),
        input_(std::move(input)) {}

  ~PipeStream() override {
    if (pid_ > 0) {
      KillGroup();
      Reap(nullptr);
    }
  }

  absl::Status Start(const std::vector<std::string>& argv) {
    Fd in, out, err;  // ends of the child
    int error = OpenPipe(&in, &stdin_);
    if (error == 0) error = OpenPipe(&stdout_, &out);
    if (error == 0) error = OpenPipe(&stderr_, &err);
    for (const Fd* end : {&stdin_, &stdout_, &stderr_}) {
      if (error == 0 && fcntl(end->get(), F_SETFL, O_NONBLOCK) != 0) {
        error = errno;
      }
    }
    if (error == 0) {
      error = Spawn(argv, in.get(), out.get(), err.get(), &pid_);
      if (error != 0) pid_ = 0;
    }
    if (error != 0) return Error("cannot be run: ", ErrnoText(error));
    if (input_ == nullptr) {
      stdin_.Reset(-1);
    } else {
      chunk_.reset(new char[kChunkBytes]);
    }
    return absl::OkStatus();
  }

  absl::Status Read(int64_t size, char* to, int64_t* read) override {
    *read = 0;
    last_progress_ = Clock::now();  // the time between reads does not count
    while (status_.ok() && *read < size && pid_ > 0) {
      status_ = ReadSome(size, to, read);
    }
    return status_;
  }

  int64_t file_bytes() const override {
    return input_ == nullptr ? -1 : input_->file_bytes();
  }

 private:
  template <typename... Args>
  absl::Status Error(const Args&... args) const {
    return ToTensorFlow(FailedPrecondition(name_, " ", args...));
  }

  absl::Status ReadSome(int64_t size, char* to, int64_t* read) {
    FillChunk();
    bool progress = false;
    LODESTAR_TRY(Exchange(size, to, read, &progress));
    if (progress) {
      wait_ = kFirstWait;
      last_progress_ = Clock::now();
    } else {
      wait_ = std::min(2 * wait_, kLongestWait);
    }
    return progress && stdout_.is_open() ? absl::OkStatus() : CheckEnd();
  }

  // Reads more input once all of the previous chunk is written.
  void FillChunk() {
    if (!stdin_.is_open() || chunk_begin_ < chunk_end_) return;
    chunk_begin_ = chunk_end_ = 0;
    // An error of the input is reported only after the output for the bytes
    // before it, so that the result does not depend on timing.
    input_status_ = input_->Read(kChunkBytes, chunk_.get(), &chunk_end_);
    last_progress_ = Clock::now();  // the time for the input does not count
    if (!input_status_.ok()) chunk_end_ = 0;
    if (chunk_end_ == 0) stdin_.Reset(-1);
  }

  // Waits until the process can be read from or written to, and does so.
  absl::Status Exchange(int64_t size, char* to, int64_t* read, bool* progress) {
    // poll() ignores negative descriptors.
    pollfd fds[] = {{cancelled_, POLLIN, 0},
                    {stdin_.get(), POLLOUT, 0},
                    {stdout_.get(), POLLIN, 0},
                    {stderr_.get(), POLLIN, 0}};
    if (poll(fds, 4, wait_) < 0 && errno != EINTR) {
      return Error("cannot be waited for: ", ErrnoText(errno));
    }
    if (fds[0].revents != 0) {
      return absl::CancelledError("reading was cancelled");
    }
    if (fds[1].revents != 0) {
      const ssize_t written = WriteWithoutSignal(
          stdin_.get(), chunk_.get() + chunk_begin_, chunk_end_ - chunk_begin_);
      if (written > 0) {
        chunk_begin_ += written;
        *progress = true;
      } else if (written < 0 && !IsTransient(errno)) {
        stdin_.Reset(-1);  // it closed its stdin
      }
    }
    if (fds[2].revents != 0) {
      const ssize_t got = ::read(stdout_.get(), to + *read, size - *read);
      if (got > 0) *read += got;
      if (got == 0 || (got < 0 && !IsTransient(errno))) stdout_.Reset(-1);
      *progress |= got >= 0;
    }
    if (fds[3].revents != 0) *progress |= ReadErrors() >= 0;
    return absl::OkStatus();
  }

  // Keeps the end of the process's stderr.
  ssize_t ReadErrors() {
    char bytes[kKeptErrorBytes];
    const ssize_t got = ::read(stderr_.get(), bytes, sizeof(bytes));
    if (got > 0) {
      errors_.append(bytes, got);
      if (errors_.size() > kKeptErrorBytes) {
        errors_.erase(0, errors_.size() - kKeptErrorBytes);
        errors_cut_ = true;
      }
    } else if (got == 0 || !IsTransient(errno)) {
      stderr_.Reset(-1);
    }
    return got;
  }

  // Calls waitid() without reaping, so that the process id stays valid for its
  // group. Returns false if other code has reaped the process.
  bool Look(siginfo_t* info) const {
    return waitid(P_PID, pid_, info, WEXITED | WNOHANG | WNOWAIT) == 0;
  }

  // Kills the process and its descendants.
  void KillGroup() {
    siginfo_t info;
    if (Look(&info)) kill(-pid_, SIGKILL);
  }

  // Waits for the end of the process. Returns false if other code has reaped
  // it.
  bool Reap(int* status) {
    const pid_t pid = std::exchange(pid_, 0);
    pid_t reaped = 0;
    while ((reaped = waitpid(pid, status, 0)) < 0 && errno == EINTR) {
    }
    return reaped == pid;
  }

  // Checks whether the process has ended, or only its output.
  absl::Status CheckEnd() {
    siginfo_t info = {};
    const bool lost = !Look(&info);
    const bool exited = lost || info.si_pid == pid_;
    const bool clean =
        !lost && info.si_code == CLD_EXITED && info.si_status == 0;
    if (exited && (!stdout_.is_open() || !clean)) return Finish(clean);
    if (exited != !stdout_.is_open() &&
        Clock::now() - last_progress_ > kPatience) {
      return Error(exited ? "has exited, but a process that it left behind "
                            "still holds its output"
                          : "has closed its output, but does not exit",
                   ErrorsText());
    }
    return absl::OkStatus();
  }

  // Returns the error of the process that has ended, if any.
  absl::Status Finish(bool clean) {
    // Reads at most the capacity of the pipe, since descendants may keep
    // writing.
    for (size_t i = 0; i < kPipeBytes / kKeptErrorBytes; ++i) {
      if (!stderr_.is_open() || ReadErrors() <= 0) break;
    }
    if (!clean) KillGroup();
    int status = 0;
    const bool reaped = Reap(&status);
    LODESTAR_TRY(input_status_);
    if (!reaped) {
      return Error(
          "has ended, but other code of this process took its exit code",
          ErrorsText());
    }
    if (WIFSIGNALED(status)) {
      return Error("was killed by signal ", WTERMSIG(status), " (",
                   strsignal(WTERMSIG(status)), ")", ErrorsText());
    }
    if (WEXITSTATUS(status) != 0) {
      return Error("exited with ", WEXITSTATUS(status), ErrorsText());
    }
    return absl::OkStatus();
  }

  std::string ErrorsText() const {
    const std::string text = OneLine(errors_);
    if (text.empty()) return "; it wrote nothing to stderr";
    return (errors_cut_ ? ": ..." : ": ") + text;
  }

  const std::string name_;  // path and command, for errors
  const int cancelled_;
  const std::unique_ptr<ByteStream> input_;
  pid_t pid_ = 0;               // 0 once reaped
  Fd stdin_, stdout_, stderr_;  // ends of this process
  absl::Status status_;
  absl::Status input_status_;
  std::unique_ptr<char[]> chunk_;  // of input, written up to chunk_begin_
  int64_t chunk_begin_ = 0;
  int64_t chunk_end_ = 0;
  std::string errors_;
  bool errors_cut_ = false;
  int wait_ = kFirstWait;
  Clock::time_point last_progress_;
};

}  // namespace

PipeCommand::PipeCommand(std::vector<std::string> argv)
    : argv_(std::move(argv)),
      text_(ListOf(argv_)),
      cancelled_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

PipeCommand::~PipeCommand() {
  if (cancelled_ >= 0) close(cancelled_);
}

absl::Status PipeCommand::Run(const std::string& path,
                              std::unique_ptr<ByteStream> input,
                              std::unique_ptr<ByteStream>* stream) const {
  return Start(argv_, path, std::move(input), stream);
}

absl::Status PipeCommand::Open(const std::string& path,
                               std::unique_ptr<ByteStream>* stream) const {
  LODESTAR_TRY(ByteStream::CheckName(path));
  std::vector<std::string> argv = argv_;
  for (std::string& word : argv) {
    for (size_t at = 0; (at = word.find(kPath, at)) != std::string::npos;) {
      word.replace(at, std::strlen(kPath), path);
      at += path.size();
    }
  }
  LODESTAR_TRY(Start(argv, path, nullptr, stream));
  *stream = ByteStream::Decompress(path, std::move(*stream));
  return absl::OkStatus();
}

absl::Status PipeCommand::Start(const std::vector<std::string>& argv,
                                const std::string& path,
                                std::unique_ptr<ByteStream> input,
                                std::unique_ptr<ByteStream>* stream) const {
  std::string name = StrCat(path, ": command ", ListOf(argv));
  // Without the eventfd a blocked stream could not be woken.
  if (cancelled_ < 0) {
    return ToTensorFlow(FailedPrecondition(
        name, " cannot be run: no file descriptor is left for it"));
  }
  auto pipe = std::make_unique<PipeStream>(std::move(name), cancelled_,
                                           std::move(input));
  LODESTAR_TRY(pipe->Start(argv));
  *stream = std::move(pipe);
  return absl::OkStatus();
}

void PipeCommand::Cancel() {
  const uint64_t one = 1;
  // Fails only if the counter is at its maximum, in which case it is readable.
  const ssize_t written = write(cancelled_, &one, sizeof(one));
  static_cast<void>(written);
}

}  // namespace lodestar
