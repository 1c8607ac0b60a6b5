// The one session of a worker, from HELLO to the end of the process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/outbox.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"
#include "rgpu_server/executor/assignment.h"
#include "rgpu_server/executor/decoder.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/links.h"

namespace rgpu::exec {

// Why a session was not opened.
struct Refusal {
  CUresult status = CUDA_ERROR_UNKNOWN;
  std::string sentence;
};

class Session {
 public:
  // `page` must outlive the session.
  Session(const Driver& driver, Assignment assignment, lease::Page* page,
          std::unique_ptr<transport::Connection> lane);

  // Answers HELLO with WELCOME, or with REFUSED and returns false. Does not read commands.
  bool Open(Refusal* refusal);
  // Starts the threads that read and execute commands.
  void Serve();
  // Takes the control lane and answers ATTACHED.
  void Attach(std::unique_ptr<transport::Connection> control, uint32_t epoch = 0);
  // Gives a lane a new connection, or refuses the RESUME.
  std::optional<Links::Report> Resume(const wire::Resume& resume,
                                      std::unique_ptr<transport::Connection> link);
  // Checks the secret in an ATTACH. Development mode only; otherwise the daemon has checked it.
  bool MayAttach(const wire::Attach& attach) const;

  // Ends the session. Any thread may call it; the first reason is kept.
  void End(const std::string& reason);
  // Tells the client that every later call fails with `status`, then ends the session.
  void EndWith(CUresult status, const std::string& sentence);
  // Readable once the session has ended.
  int ended_fd() const { return ended_.get(); }
  std::string reason();
  // Sends what is queued for the client, within a time limit.
  void Finish();

  uint64_t number() const { return assignment_.session; }
  const wire::Band& band() const { return welcome_.band; }
  wire::worker::Ring ring() const { return ring_; }
  Exports& exports() { return executor_->exports(); }
  transport::Outbox& outbox() { return outbox_; }
  transport::FrameReader& reader() { return reader_; }

 private:
  bool ReserveBands(const wire::Hello& hello, Refusal* refusal);
  bool StartDevice(Refusal* refusal);
  bool SayWelcome();
  std::vector<int> SharedMemory() const;
  bool AwaitAnswer();
  std::unique_ptr<transport::Connection> Prepare(std::unique_ptr<transport::Connection> lane);
  void EndLost(const std::string& reason);
  bool Admit(const wire::Hello& hello, Refusal* refusal);
  void ReadControl();
  bool OnControl(transport::FrameReader& reader, const wire::FrameHeader& header,
                 wire::ByteView head);

  const Driver& driver_;
  Assignment assignment_;
  lease::Page* page_;
  Links links_;
  transport::ShmConnection* shared_ = nullptr;  // inside lane_, if the client asked for a ring
  wire::worker::Ring ring_ = wire::worker::Ring::kNotWished;
  std::unique_ptr<transport::Connection> lane_;
  std::unique_ptr<transport::Connection> control_;
  transport::FrameReader reader_;
  transport::Outbox outbox_;
  Ledger ledger_;
  wire::Welcome welcome_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Decoder> decoder_;
  base::UniqueFd ended_;
  std::mutex reason_mutex_;
  std::string reason_;
};

// Tells the client on `lane` why it gets no session.
void SendRefused(transport::Outbox& outbox, const Refusal& refusal);

}  // namespace rgpu::exec
