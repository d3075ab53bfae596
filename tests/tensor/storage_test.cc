#include "tally/tensor/storage.h"

#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tensor/backend.h"
#include "tally/tensor/tensor.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Notes the events of this thread while it lives.
class Notebook : public StorageObserver {
 public:
  Notebook() : before_(SetStorageObserver(this)) {}
  ~Notebook() override { SetStorageObserver(before_); }
  void OnAllocate(Storage& storage) override { lines.push_back("+" + Line(storage)); }
  void OnFree(Storage& storage) override { lines.push_back("-" + Line(storage)); }
  void OnHostRead(const Tensor& tensor) override { lines.push_back(tensor.spec().ToString()); }

  std::vector<std::string> lines;

 private:
  static std::string Line(const Storage& storage) { return std::to_string(storage.bytes()); }
  StorageObserver* before_;
};

TEST(StorageObserver, SeesRequestedBytesOnCpuAndMetaAlike) {
  for (const Device device : {kCpu, kMeta}) {
    SCOPED_TRACE(device.ToString());
    Notebook notebook;
    for (const int64_t n : {0, 1, 3, 200, 5000, 1000000}) Tensor::Empty({DType::kF32, {n}}, device);
    EXPECT_THAT(notebook.lines, ElementsAre("+0", "-0", "+4", "-4", "+12", "-12", "+800", "-800",
                                            "+20000", "-20000", "+4000000", "-4000000"));
  }
}

TEST(StorageObserver, SeesOneFreeWhenTheLastViewGoes) {
  Notebook notebook;
  {
    Tensor view;
    {
      const Tensor base = Tensor::Empty({DType::kF32, {4}});
      view = base.Alias({DType::kF32, {2}}, {1}, 2);
      const Tensor copy = view;
    }
    EXPECT_THAT(notebook.lines, ElementsAre("+16"));
  }
  EXPECT_THAT(notebook.lines, ElementsAre("+16", "-16"));
}

TEST(StorageObserver, SeesEachHostReadOnce) {
  const Tensor t = Tensor::Ones({DType::kF32, {1}});
  Notebook notebook;
  t.ToDoubles();
  EXPECT_THAT(notebook.lines, ElementsAre("f32[1]"));
  t.ToVector<float>();
  EXPECT_THAT(notebook.lines, ElementsAre("f32[1]", "f32[1]"));
  t.Item();
  EXPECT_EQ(notebook.lines.size(), 3u);
}

TEST(StorageObserver, DoesNotCountPrintingAsARead) {
  const Tensor t = Tensor::Ones({DType::kF32, {1}});
  Notebook notebook;
  EXPECT_EQ(t.ToString(), "f32[1] [1]");
  EXPECT_THAT(notebook.lines, IsEmpty());
}

TEST(StorageObserver, BelongsToOneThread) {
  Notebook notebook;
  std::thread([] {
    EXPECT_EQ(CurrentStorageObserver(), nullptr);
    Tensor::Empty({DType::kF32, {4}});
  }).join();
  EXPECT_THAT(notebook.lines, IsEmpty());
}

TEST(StorageObserver, InstallingReturnsTheOneBefore) {
  Notebook outer;
  EXPECT_EQ(CurrentStorageObserver(), &outer);
  {
    Notebook inner;
    EXPECT_EQ(CurrentStorageObserver(), &inner);
  }
  EXPECT_EQ(CurrentStorageObserver(), &outer);
}

TEST(StorageObserver, CanStillReadTheBytesWhenTheyAreFreed) {
  struct Reader : StorageObserver {
    void OnAllocate(Storage&) override {}
    void OnFree(Storage& storage) override { last = *static_cast<float*>(storage.data()); }
    void OnHostRead(const Tensor&) override {}
    float last = 0;
  } reader;
  StorageObserver* before = SetStorageObserver(&reader);
  for (const int64_t n : {1, 100000}) Tensor::Full({DType::kF32, {n}}, 7);
  SetStorageObserver(before);
  EXPECT_EQ(reader.last, 7);
}

TEST(MemoryMeter, MeasuresLiveAndPeakRequestedBytes) {
  for (const Device device : {kCpu, kMeta}) {
    SCOPED_TRACE(device.ToString());
    ResetPeak(device.kind);
    const int64_t before = ThreadMemory(device.kind).live;
    EXPECT_EQ(ThreadMemory(device.kind).peak, before);
    {
      const Tensor a = Tensor::Empty({DType::kF32, {1000}}, device);
      { const Tensor b = Tensor::Empty({DType::kF32, {10}}, device); }
      const Tensor c = Tensor::Empty({DType::kF32, {1}}, device);
      EXPECT_EQ(ThreadMemory(device.kind).live - before, 4000 + 4);
    }
    EXPECT_EQ(ThreadMemory(device.kind).live, before);
    EXPECT_EQ(ThreadMemory(device.kind).peak - before, 4000 + 40);
    ResetPeak(device.kind);
    EXPECT_EQ(ThreadMemory(device.kind).peak, before);
  }
}

TEST(Storage, RefusesNegativeSizes) {
  EXPECT_EQ(Storage::Allocate(-1, kCpu, Origin::kInput).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Storage, OfAnySizeIsAlignedAndWritable) {
  for (int64_t bytes = 0; bytes < 3000; bytes = bytes * 9 / 8 + 1) {
    Storage* storage = *Storage::Allocate(bytes, kCpu, Origin::kInput);
    ASSERT_NE(storage->data(), nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % 64, 0u);
    std::fill_n(static_cast<char*>(storage->data()), bytes, 'x');
    storage->Unref();
  }
}

TEST(Storage, LiveOnesDoNotOverlap) {
  std::vector<Storage*> storages;
  for (int i = 0; i < 3000; ++i) {
    storages.push_back(*Storage::Allocate(i % 1200, kCpu, Origin::kInput));
    std::fill_n(static_cast<unsigned char*>(storages.back()->data()), i % 1200, i % 251);
  }
  for (int i = 0; i < 3000; ++i) {
    const auto* bytes = static_cast<const unsigned char*>(storages[i]->data());
    EXPECT_EQ(std::count(bytes, bytes + i % 1200, i % 251), i % 1200);
    storages[i]->Unref();
  }
}

TEST(Storage, IdsAreUniqueAcrossThreads) {
  std::vector<std::vector<uint64_t>> ids(4);
  std::vector<std::thread> threads;
  for (std::vector<uint64_t>& mine : ids) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < 10000; ++i) mine.push_back(Tensor::Empty({}, kMeta).storage().id());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> all;
  for (const std::vector<uint64_t>& mine : ids) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 40000u);
}

TEST(Storage, OriginNamesReadBack) {
  for (int i = 0; i < kNumOrigins; ++i) {
    Origin origin = Origin::kInput;
    ASSERT_TRUE(OriginFromName(Name(static_cast<Origin>(i)), &origin));
    EXPECT_EQ(origin, static_cast<Origin>(i));
  }
  Origin origin = Origin::kGradient;
  EXPECT_FALSE(OriginFromName("nonsense", &origin));
  EXPECT_EQ(origin, Origin::kGradient);
}

TEST(Storage, MayBeFreedByAnotherThread) {
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> made(1000);
    std::thread([&] {
      for (size_t i = 0; i < made.size(); ++i) {
        made[i] = Tensor::Full({DType::kI32, {static_cast<int64_t>(i % 400)}}, round);
      }
    }).join();
    for (size_t i = 1; i < made.size(); i += 400) EXPECT_EQ(made[i].Item(), round);
    std::thread([&] { made.clear(); }).join();
  }
}

TEST(Storage, SharedHandlesOfManyThreadsFreeItOnce) {
  const int64_t before = CpuAllocatorStats().requested_bytes;
  for (int round = 0; round < 50; ++round) {
    Tensor shared = Tensor::Full({DType::kF32, {64}}, round);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([shared, round]() mutable {
        for (int i = 0; i < 200; ++i) {
          const Tensor view = shared.Alias({DType::kF32, {1}}, {1}, i % 64);
          ASSERT_EQ(*view.data<float>(), round);
        }
        shared = Tensor();
      });
    }
    shared = Tensor();
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(CpuAllocatorStats().requested_bytes, before);
}

TEST(Storage, ManyThreadsAllocateAndFreeAtOnce) {
  const int64_t before = CpuAllocatorStats().requested_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<Tensor> live(50);
      Random random(100 + t);
      for (int i = 0; i < 5000; ++i) {
        Tensor& slot = live[random.NextBelow(live.size())];
        if (slot.defined() && slot.numel() > 0) {
          ASSERT_EQ(slot.data<int32_t>()[slot.numel() - 1], t);
        }
        const int64_t n =
            random.NextBelow(10) == 0 ? random.NextBelow(20000) : random.NextBelow(300);
        slot = Tensor::Full({DType::kI32, {n}}, t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(CpuAllocatorStats().requested_bytes, before);
}

TEST(Storage, BlocksOfEndedThreadsAreUsedAgain) {
  const auto thread_of_tensors = [] {
    std::thread([] {
      std::vector<Tensor> live;
      for (int i = 0; i < 500; ++i) live.push_back(Tensor::Ones({DType::kF32, {i % 100}}));
    }).join();
  };
  for (int i = 0; i < 3; ++i) thread_of_tensors();
  const int64_t reserved = CpuAllocatorStats().reserved_bytes;
  for (int i = 0; i < 100; ++i) thread_of_tensors();
  EXPECT_EQ(CpuAllocatorStats().reserved_bytes, reserved);
}

// Destroyed after the thread's block cache when it is made before it.
TEST(Storage, MayBeFreedByThreadLocalsThatOutliveTheCache) {
  struct Holder {
    Tensor tensor;
    ~Holder() {
      tensor = Tensor();
      Tensor::Ones({DType::kF32, {3}});  // a new one, even now
    }
  };
  const int64_t before = CpuAllocatorStats().requested_bytes;
  for (int i = 0; i < 3; ++i) {
    std::thread([] {
      thread_local Holder first;  // constructed first, destroyed last
      EXPECT_FALSE(first.tensor.defined());
      first.tensor = Tensor::Ones({DType::kF32, {5}});
    }).join();
  }
  EXPECT_EQ(CpuAllocatorStats().requested_bytes, before);
}

TEST(Storage, SmallOnesCountAsRequestedBytes) {
  const int64_t before = CpuAllocatorStats().requested_bytes;
  {
    const Tensor small = Tensor::Empty({DType::kU8, {100}});
    const Tensor large = Tensor::Empty({DType::kU8, {100000}});
    EXPECT_EQ(CpuAllocatorStats().requested_bytes - before, 100 + 100000);
  }
  EXPECT_EQ(CpuAllocatorStats().requested_bytes, before);
}

}  // namespace
}  // namespace tally
