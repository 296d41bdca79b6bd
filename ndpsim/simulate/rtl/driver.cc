// Drives a unit, compiled by CXXRTL, edge by edge; called from Python (`ndpsim.simulate.rtl.compiled`).
//
// `UNIT_FILE` and `UNIT` are the C++ of the unit and its class; `OWN_FIFO` is 1 if it has `in_credit`.
#include UNIT_FILE
#include <cxxrtl/cxxrtl_vcd.h>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <vector>

namespace {

template <size_t N> uint32_t *set(cxxrtl::value<N> &port) { return port.data; }
template <size_t N> uint32_t *set(cxxrtl::wire<N> &port) { return port.next.data; }
template <size_t N> const uint32_t *get(const cxxrtl::value<N> &port) { return port.data; }
template <size_t N> const uint32_t *get(const cxxrtl::wire<N> &port) { return port.curr.data; }
template <size_t N> constexpr size_t width(const cxxrtl::value<N> &) { return N; }
template <size_t N> constexpr size_t width(const cxxrtl::wire<N> &) { return N; }

bool bit(const uint32_t *word, size_t number) { return word[number / 32] >> (number % 32) & 1; }

void put(uint32_t *word, size_t first, size_t bits, uint64_t number) {
  for (size_t each = 0; each < bits; each++) {
    uint32_t mask = 1u << ((first + each) % 32);
    uint32_t &chunk = word[(first + each) / 32];
    chunk = number >> each & 1 ? chunk | mask : chunk & ~mask;
  }
}

// Copies whole bytes to a bit that is a multiple of 8.
void copy(uint32_t *word, size_t first, const uint8_t *bytes, size_t count) {
  std::memcpy(reinterpret_cast<uint8_t *>(word) + first / 8, bytes, count);
}

uint64_t field(const uint32_t *word, size_t first, size_t bits) {
  uint64_t number = 0;
  for (size_t each = 0; each < bits; each++) number |= uint64_t(bit(word, first + each)) << each;
  return number;
}

struct Burst {
  int64_t edge, row, vector, phase, number;
};

struct Vector {
  int64_t lanes, place;  // the lanes that store it, as bits
  const uint8_t *bytes;
};

struct Run {
  UNIT unit;
  size_t lanes, burst_bytes, vector_bytes;
  int64_t edge = 0;
  std::vector<std::deque<Burst>> bursts;
  std::deque<Vector> activations;
  const uint8_t *weights[2] = {nullptr, nullptr};
  cxxrtl::debug_items items;
  cxxrtl::vcd_writer waves;
  std::ofstream waves_file;
  std::vector<bool> valid;

  void sample(int64_t time) {
    if (!waves_file.is_open()) return;
    waves.sample(time);
    waves_file << waves.buffer;
    waves.buffer.clear();
  }

  void settle(bool clock) {
    set(unit.p_clk)[0] = clock;
    // Registers take what has settled. What follows from them settles before the next edge, with new inputs;
    // waveforms have it at once.
    if (clock && !waves_file.is_open()) {
      unit.eval();
      unit.commit();
    } else {
      unit.step();
    }
    sample(2 * edge + clock);
  }
};

}  // namespace

extern "C" {

Run *make(int64_t lanes, int64_t burst_bytes, int64_t vector_bytes, const char *waves) {
  Run *run = new Run();
  run->lanes = lanes;
  run->burst_bytes = burst_bytes;
  run->vector_bytes = vector_bytes;
  run->bursts.resize(lanes);
  run->valid.resize(lanes);
  if (waves[0]) {
    run->unit.debug_info(&run->items, nullptr, "unit ");
    run->waves.timescale(1, "ns");
    run->waves.add(run->items);
    run->waves_file.open(waves);
  }
  set(run->unit.p_rst)[0] = 1;
  set(run->unit.p_out__ready)[0] = 1;
  run->edge = -4;
  for (; run->edge < 0; run->edge++) run->settle(false), run->settle(true);
  set(run->unit.p_rst)[0] = 0;
  return run;
}

void destroy(Run *run) { delete run; }

// The weights of a phase, burst by burst.
void weights(Run *run, int64_t phase, const uint8_t *bytes) { run->weights[phase] = bytes; }

void add_activations(Run *run, int64_t count, const int64_t *lanes, const int64_t *places, const uint8_t *bytes) {
  for (int64_t each = 0; each < count; each++)
    run->activations.push_back({lanes[each], places[each], bytes + each * run->vector_bytes});
}

void add_bursts(Run *run, int64_t count, int64_t lane, const int64_t *fields) {
  for (int64_t each = 0; each < count; each++, fields += 5)
    run->bursts[lane].push_back({fields[0], fields[1], fields[2], fields[3], fields[4]});
}

// The ports that `trace` records at an edge, for a comparison of two runs.
int64_t outputs(Run *run, uint32_t *words) {
  uint32_t *start = words;
  auto record = [&](const uint32_t *data, size_t bits) {
    std::memcpy(words, data, (bits + 31) / 32 * 4);
    words += (bits + 31) / 32;
  };
  UNIT &unit = run->unit;
  record(get(unit.p_in__ready), width(unit.p_in__ready));
  record(get(unit.p_out__valid), 1);
  return words - start;
}

// Runs the edges up to `until`, or until `wanted` results. Returns the number of results; see `compiled.py`.
int64_t advance(Run *run, int64_t until, int64_t go_from, int64_t phase, int64_t tokens, int64_t row_bursts,
                int64_t wanted, int64_t *results, int64_t *credits, int64_t *counts) {
  UNIT &unit = run->unit;
  int64_t found = 0, given = 0;
  counts[1] = -1;  // the lane that lost a burst
  for (; run->edge < until && found < wanted; run->edge++) {
    int64_t edge = run->edge;
    bool go = edge >= go_from;
    set(unit.p_go)[0] = go;
#if OWN_FIFO
    set(unit.p_phase)[0] = phase;
#endif
    put(set(unit.p_tokens), 0, width(unit.p_tokens), tokens);
    put(set(unit.p_row__bursts), 0, 16, row_bursts);
    put(set(unit.p_act__valid), 0, run->lanes, 0);
    if (!run->activations.empty()) {
      const Vector &vector = run->activations.front();
      put(set(unit.p_act__valid), 0, run->lanes, vector.lanes);
      put(set(unit.p_act__vector), 0, 16, vector.place);
      copy(set(unit.p_act__data), 0, vector.bytes, run->vector_bytes);
      run->activations.pop_front();
    }
    for (size_t lane = 0; lane < run->lanes; lane++) {
      auto &waiting = run->bursts[lane];
      bool valid = !waiting.empty() && waiting.front().edge <= edge;
      if (valid && !OWN_FIFO) valid = go && waiting.front().phase == phase;
      put(set(unit.p_in__valid), lane, 1, valid);
      run->valid[lane] = valid;
      if (!valid) continue;
      const Burst &burst = waiting.front();
      copy(set(unit.p_in__data), lane * run->burst_bytes * 8,
           run->weights[burst.phase] + burst.number * run->burst_bytes, run->burst_bytes);
      put(set(unit.p_in__row), lane * 16, 16, burst.row);
      put(set(unit.p_in__vector), lane * 16, 16, burst.vector);
#if OWN_FIFO
      put(set(unit.p_in__phase), lane, 1, burst.phase);
#endif
    }
    run->settle(false);
    for (size_t lane = 0; lane < run->lanes; lane++) {
      bool ready = bit(get(unit.p_in__ready), lane);
      int64_t credit = run->valid[lane] && ready;
#if OWN_FIFO
      if (run->valid[lane] && !ready) {
        counts[1] = lane;
        counts[2] = edge;
        counts[0] = given;
        return found;
      }
      credit = field(get(unit.p_in__credit), lane * 8, 8);
#endif
      if (credit) {
        credits[3 * given] = lane;
        credits[3 * given + 1] = edge;
        credits[3 * given + 2] = credit;
        given++;
      }
      if (run->valid[lane] && ready) run->bursts[lane].pop_front();
    }
    if (get(unit.p_out__valid)[0] & 1) {
      int64_t *result = results + 4 * found++;
      size_t bits = width(unit.p_out__sum);
      uint64_t sum = field(get(unit.p_out__sum), 0, bits);
      if (bits < 64 && sum >> (bits - 1) & 1) sum |= ~uint64_t(0) << bits;
      result[0] = edge - 1;
      result[1] = field(get(unit.p_out__row), 0, 16);
      result[2] = field(get(unit.p_out__token), 0, width(unit.p_out__token));
      result[3] = int64_t(sum);
    }
    run->settle(true);
  }
  counts[0] = given;
  return found;
}

int64_t edge(Run *run) { return run->edge; }
}
