/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * Aggregation where a frame arrives: what a worker of a job contributes is added to the
 * job's slot here, and only a frame that has a result to tell goes on to its socket. That
 * is one frame in as many as there are workers, so seven of eight are neither copied to
 * user space nor read on another core.
 *
 * The rule is SwitchML's as aggregation/switchml.go has it, table by table, and tests hold
 * the two to each other. Slots are shared by all CPUs and by the programs of all ports, so
 * each has a lock; counts are of one CPU, and user space adds up.
 */
#ifndef GRADNIC_SUM_H
#define GRADNIC_SUM_H

/* Kept in step with package xdp and with wire/switchml. */
#define SUM_ELEMENTS 256	/* of a slot; a job has them all or 64 */
#define SUM_FEW 64
#define SUM_VALUES 52		/* where they begin in a frame */
#define SUM_HEADER 10
#define SUM_PORT 0xbee0
#define SUM_PORT_MASK 0xfff0
#define SUM_TYPE 1
#define SUM_SLOT_MASK 0x3fff
#define SUM_BUCKETS 27		/* of times, by powers of two from 2^10 ns: dataplane/completion.go */
#define SUM_FIRST_BUCKET 10

/*
 * What a frame of a known worker that goes on says in its UDP checksum, beside its job's tag. The checksum has no other
 * use on the way: nothing checks it. The sender's is overwritten, so no sender can say it, and none knows the tag, so
 * neither can a frame that another program let by.
 */
enum sum_mark {
	MARK_NONE,	/* not what its job's frames are: the lane finds the reason */
	MARK_COMPLETED,	/* its values are now the result of a slot that it has completed */
	MARK_ANSWERED,	/* its values are now the result of a slot that was complete before */
};

/* What became of a frame. */
enum summed {
	NOT_SUMMED,	/* of no job here */
	ADDED,
	SEEN,		/* of a contribution that had been seen */
	RESULT,		/* goes on, with a mark */
};

/*
 * Values are added two at a time, as halves of a word. A half can hold the sum of 2^k values
 * whose magnitude is at most B = 2^(31-k) without a carry into the other half, when B is added to each
 * value: then none is negative. So each half is the sum plus folds * B, as long as all values
 * are from -B to B - 1 and there are not more than 2^k of them. A value beyond, or one contribution more (which only
 * faulty workers bring about), makes the version exact: from then on halves are added one
 * by one, without B, and those that wrap are counted. With values up to B no sum can wrap.
 */
struct sum_version {
	__u64 started;	/* bpf_ktime_get_ns of the first contribution, 0: not known */
	__u32 seen;	/* a bit for each rank */
	__u16 count;	/* contributions that are missing; 0: complete, or nothing in it */
	__u16 folds;	/* contributions in the values */
	__u8 exact;
	__u8 zero;
	__s8 exponents[2];
	__u32 zero2;
	__u64 values[SUM_ELEMENTS / 2]; /* host order, the first one in the upper half */
};

struct sum_slot {
	struct bpf_spin_lock lock;
	__u32 generation;	/* of the job that it is of: what an earlier one left is not there */
	struct sum_version version[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space says how many */
	__type(key, __u32);
	__type(value, struct sum_slot);
} sum_slots SEC(".maps");

/* A worker is known by its addresses. */
struct sum_key {
	__u8 mac[6];
	__u16 zero;
	__u8 ip[4];
};

struct sum_member {
	struct sum_key key;
	__u32 generation;
	__u64 guard;	/* the bits of each half that are 0 in a value plus B, if it is not beyond */
	__u32 bias;	/* B */
	__u32 most;	/* 2^k, at least the number of workers */
	__u32 base;	/* its job's first slot */
	__u32 job;	/* number in sum_jobs */
	__u32 worker;	/* number in sum_workers */
	__u16 slots;
	__u16 elements;
	__u8 workers;
	__u8 rank;
	__u16 tag;	/* a multiple of 4: the mark is added to it */
};

#define SUM_MEMBERS 8192

/*
 * Members have numbers. What a number stands for is written before any frame can find it and stays until
 * long after none can: numbers are used in turn, and there are twice as many as members. 0 is nobody.
 */
#define SUM_NUMBERS (2 * SUM_MEMBERS)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SUM_NUMBERS);
	__type(key, __u32);
	__type(value, struct sum_member);
} sum_members SEC(".maps");

/* The number of a member whose address ends in these bits. Most are found here, at a fifth of the cost of the hash. */
#define SUM_NEAR 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SUM_NEAR);
	__type(key, __u32);
	__type(value, __u32);
} sum_near SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* changed from user space alone */
	__uint(max_entries, SUM_MEMBERS + 1); /* a member that gets other addresses has both for a moment */
	__type(key, struct sum_key);
	__type(value, __u32);
} sum_numbers SEC(".maps");

struct sum_worker {
	__u64 received, contributed, duplicates, resent, last;
	__u64 seen;	/* when the latest came, bpf_ktime_get_coarse_ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SUM_MEMBERS);
	__type(key, __u32);
	__type(value, struct sum_worker);
} sum_workers SEC(".maps");

struct sum_job {
	__u64 results, resent, wrapped;
	__u64 nanoseconds;	/* from first contribution to completion, of all slots together */
	__u64 times[SUM_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* user space says how many */
	__type(key, __u32);
	__type(value, struct sum_job);
} sum_jobs SEC(".maps");

#define IN_ORDER(x) asm volatile("" : "+r"(x) : : "memory") /* clang would have more in flight than there are registers */

/*
 * sum_time counts a slot that took so long. Its place is written in the program, not computed: once a computed number is
 * added to a pointer, the verifier, without CAP_PERFMON, takes two paths for the same only when all numbers are, and with
 * Linux 6.1 it does not come to an end.
 */
static __always_inline void sum_time(struct sum_job *j, __u64 ns)
{
	__u64 v = ns >> SUM_FIRST_BUCKET;

	j->nanoseconds += ns;
#define COUNT_IN(i)									\
	do {										\
		if (!v) {								\
			j->times[i]++;							\
			asm volatile("" : : "i"(i) : "memory"); /* or clang has one place for all */ \
			return;								\
		}									\
		v >>= 1;								\
		IN_ORDER(v);								\
	} while (0)
	COUNT_IN(0); COUNT_IN(1); COUNT_IN(2); COUNT_IN(3); COUNT_IN(4); COUNT_IN(5); COUNT_IN(6);
	COUNT_IN(7); COUNT_IN(8); COUNT_IN(9); COUNT_IN(10); COUNT_IN(11); COUNT_IN(12); COUNT_IN(13);
	COUNT_IN(14); COUNT_IN(15); COUNT_IN(16); COUNT_IN(17); COUNT_IN(18); COUNT_IN(19); COUNT_IN(20);
	COUNT_IN(21); COUNT_IN(22); COUNT_IN(23); COUNT_IN(24); COUNT_IN(25);
	j->times[SUM_BUCKETS - 1]++;
}

/*
 * The loops over the values. They are unrolled: half of the cost of a short loop is the
 * loop, and of a program without CAP_PERFMON the verifier takes one for endless. Values
 * begin at 4 bytes beyond a multiple of 8, which no machine with XDP in its drivers minds.
 */
#define SUM_LOOP(n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n) / 2; i++)

/*
 * biased adds B to both halves of x: turn changes the sign bit of the lower half, so that adding to it carries over only
 * when the value is beyond; shift is B for the upper half, and for the lower one less what turn has added.
 */
#define TURN (1ULL << 31)
#define SHIFT(bias) (((__u64)(bias) << 32) + (bias) - TURN)

static __always_inline __u64 sum_store(struct sum_version *v, const __u64 *p, __u64 turn, __u64 shift, int first, int n)
{
	__u64 bits = 0;

	SUM_LOOP(n) {
		__u64 x = ntohll(p[first / 2 + i]);

		x = (x ^ turn) + shift;
		IN_ORDER(x);
		bits |= x;
		v->values[first / 2 + i] = x;
		IN_ORDER(bits);
	}
	return bits;
}

static __always_inline __u64 sum_add(struct sum_version *v, const __u64 *p, __u64 turn, __u64 shift, int first, int n)
{
	__u64 bits = 0;

	SUM_LOOP(n) {
		__u64 x = ntohll(p[first / 2 + i]);

		x = (x ^ turn) + shift;
		IN_ORDER(x);
		bits |= x;
		v->values[first / 2 + i] += x;
		IN_ORDER(bits);
	}
	return bits;
}

/* sum_keep is sum_store for what is beyond. */
static __always_inline void sum_keep(struct sum_version *v, const __u64 *p, int first, int n)
{
	SUM_LOOP(n) {
		__u64 x = ntohll(p[first / 2 + i]);

		IN_ORDER(x);
		v->values[first / 2 + i] = x;
	}
}

/* sum_undo takes what sum_add has added out again, and base, which is folds * B, out of each half. */
static __always_inline void sum_undo(struct sum_version *v, const __u64 *p, __u64 turn, __u64 shift, __u32 base, int first, int n)
{
	SUM_LOOP(n) {
		__u64 x = ntohll(p[first / 2 + i]);
		__u32 upper, lower;

		x = v->values[first / 2 + i] - ((x ^ turn) + shift);
		IN_ORDER(x);
		upper = (__u32)(x >> 32) - base;
		lower = (__u32)x - base;
		v->values[first / 2 + i] = (__u64)upper << 32 | lower;
		IN_ORDER(x);
	}
}

/* sum_exactly adds half by half, and returns how many wrapped. */
static __always_inline __u32 sum_exactly(struct sum_version *v, const __u64 *p, int first, int n)
{
	__u32 wraps = 0;

	SUM_LOOP(n) {
		__u64 x = ntohll(p[first / 2 + i]), y = v->values[first / 2 + i];
		__u32 a = y >> 32, b = x >> 32, upper = a + b, lower;

		wraps += ((upper ^ a) & (upper ^ b)) >> 31;
		IN_ORDER(wraps);
		a = y, b = x, lower = a + b;
		wraps += ((lower ^ a) & (lower ^ b)) >> 31;
		v->values[first / 2 + i] = (__u64)upper << 32 | lower;
		IN_ORDER(wraps);
	}
	return wraps;
}

static __always_inline void sum_tell(const struct sum_version *v, __u64 *p, __u32 base, int first, int n)
{
	SUM_LOOP(n) {
		__u64 x = v->values[first / 2 + i];
		__u32 upper = (__u32)(x >> 32) - base, lower = (__u32)x - base;

		x = (__u64)upper << 32 | lower;
		IN_ORDER(x);
		p[first / 2 + i] = ntohll(x);
	}
}

/* rest says once more, to the verifier alone, that all values of a large frame are there: it does not see that large implies it. */
static __always_inline int rest(const __u64 *p, void *end)
{
	IN_ORDER(p);
	return (void *)(p + SUM_ELEMENTS / 2) <= end;
}

static __always_inline int same_key(const struct sum_key *a, const struct sum_key *b)
{
	const __u32 *x = (const void *)a, *y = (const void *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]));
}

/*
 * sum takes a frame that is UDP to the NIC's own address. Not inlined: the programs for
 * one buffer and for several share it.
 */
static __attribute__((noinline)) int sum(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = data;
	struct ipv4 *ip = data + sizeof(*eth);
	struct udp *udp = data + sizeof(*eth) + sizeof(*ip);
	__u8 *header = data + sizeof(*eth) + sizeof(*ip) + sizeof(*udp);
	__u64 *p = data + SUM_VALUES;
	/* Words, so that registers are put aside whole: without CAP_PERFMON the verifier lets nothing less be put where a pointer was. */
	__u64 now = 0, bits, turn = TURN, shift, index, bit, seen, length, total, base, wraps = 0, large, answered = 0;
	__u32 slot, *number;
	struct sum_key key = {};
	struct sum_member *m;
	struct sum_worker *w;
	struct sum_version *v, *other;
	struct sum_slot *s;
	struct sum_job *j;

	if ((void *)header > end || (ntohs(udp->dst) & SUM_PORT_MASK) != SUM_PORT)
		return NOT_SUMMED;
	__builtin_memcpy(key.mac, eth->src, sizeof(key.mac));
	__builtin_memcpy(key.ip, ip->src, sizeof(key.ip));
	slot = (key.ip[2] << 8 | key.ip[3]) & (SUM_NEAR - 1);
	number = bpf_map_lookup_elem(&sum_near, &slot);
	if (!number)
		return NOT_SUMMED;
	m = bpf_map_lookup_elem(&sum_members, number);
	if (!m)
		return NOT_SUMMED;
	if (!m->workers || !same_key(&m->key, &key)) {
		number = bpf_map_lookup_elem(&sum_numbers, &key);
		if (!number)
			return NOT_SUMMED;
		m = bpf_map_lookup_elem(&sum_members, number);
		if (!m)
			return NOT_SUMMED;
	}
	udp->checksum = htons(m->tag | MARK_NONE);
	length = ntohs(udp->length);
	total = ntohs(ip->length);
	large = m->elements == SUM_ELEMENTS;
	IN_ORDER(large);
	if ((void *)p > end)
		return RESULT;
	index = header[6] << 8 | header[7];
	slot = index & SUM_SLOT_MASK;
	/* A packet that has more behind its datagram goes on, too: no worker sends one, and where it ends takes a computed number. */
	if (header[0] >> 4 != SUM_TYPE || (header[0] & 7) != (large ? 3 : 1) ||
	    length != sizeof(*udp) + SUM_HEADER + 4 * m->elements || total != sizeof(*ip) + length || slot >= m->slots)
		return RESULT;
	slot += m->base;
	s = bpf_map_lookup_elem(&sum_slots, &slot);
	w = bpf_map_lookup_elem(&sum_workers, &m->worker);
	j = bpf_map_lookup_elem(&sum_jobs, &m->job);
	if (!s || !w || !j)
		return RESULT;
	if ((void *)(p + SUM_FEW / 2) > end || (large && (void *)(p + SUM_ELEMENTS / 2) > end))
		return RESULT;

	index >>= 15;
	if (index) { /* without a computed number, as in sum_time */
		v = &s->version[1];
		other = &s->version[0];
		IN_ORDER(v);
	} else {
		v = &s->version[0];
		other = &s->version[1];
		IN_ORDER(v);
	}
	bit = 1ULL << (m->rank & 31);
	IN_ORDER(bit);
	shift = SHIFT(m->bias);
	/* Looked at without the lock: whoever is wrong has no time for its slot, and says so. */
	if (!v->count || s->generation != m->generation)
		now = bpf_ktime_get_ns();

	bpf_spin_lock(&s->lock);
	if (s->generation != m->generation) {
		if ((int)(m->generation - s->generation) < 0) { /* the job was removed while this ran */
			bpf_spin_unlock(&s->lock);
			return RESULT;
		}
		s->generation = m->generation;
		v->seen = other->seen = 0;
		v->count = other->count = 0;
	}
	seen = v->seen;
	IN_ORDER(seen);
	v->seen = seen | bit;
	other->seen &= ~bit;
	if (seen & bit) {
		if (v->count) {
			bpf_spin_unlock(&s->lock);
			w->received++;
			w->duplicates++;
			w->seen = bpf_ktime_get_coarse_ns();
			return SEEN;
		}
		answered = 1;
	} else {
		if (v->count) {
			v->count--;
		} else {
			v->count = m->workers - 1;
			v->started = now;
		}
		if (!seen) {
			v->exact = 0;
			v->folds = 1;
			v->exponents[0] = header[8];
			v->exponents[1] = header[9];
			bits = sum_store(v, p, turn, shift, 0, SUM_FEW);
			if (large && rest(p, end))
				bits |= sum_store(v, p, turn, shift, SUM_FEW, SUM_ELEMENTS - SUM_FEW);
			if (bits & m->guard) {
				v->exact = 1;
				sum_keep(v, p, 0, SUM_FEW);
				if (large && rest(p, end))
					sum_keep(v, p, SUM_FEW, SUM_ELEMENTS - SUM_FEW);
			}
		} else {
			if ((__s8)header[8] > v->exponents[0])
				v->exponents[0] = header[8];
			if ((__s8)header[9] > v->exponents[1])
				v->exponents[1] = header[9];
			if (!v->exact) {
				bits = sum_add(v, p, turn, shift, 0, SUM_FEW);
				if (large && rest(p, end))
					bits |= sum_add(v, p, turn, shift, SUM_FEW, SUM_ELEMENTS - SUM_FEW);
				if ((bits & m->guard) || v->folds >= m->most) {
					base = v->folds * m->bias;
					v->exact = 1;
					sum_undo(v, p, turn, shift, base, 0, SUM_FEW);
					if (large && rest(p, end))
						sum_undo(v, p, turn, shift, base, SUM_FEW, SUM_ELEMENTS - SUM_FEW);
				}
			}
			v->folds++;
			if (v->exact) {
				wraps = sum_exactly(v, p, 0, SUM_FEW);
				if (large && rest(p, end))
					wraps += sum_exactly(v, p, SUM_FEW, SUM_ELEMENTS - SUM_FEW);
			}
		}
		if (v->count) {
			bpf_spin_unlock(&s->lock);
			w->received++;
			w->contributed++;
			w->seen = bpf_ktime_get_coarse_ns();
			if (wraps)
				j->wrapped += wraps;
			return ADDED;
		}
	}
	header[8] = v->exponents[0];
	header[9] = v->exponents[1];
	base = v->exact ? 0 : v->folds * m->bias;
	sum_tell(v, p, base, 0, SUM_FEW);
	if (large && rest(p, end))
		sum_tell(v, p, base, SUM_FEW, SUM_ELEMENTS - SUM_FEW);
	now = v->started;
	bpf_spin_unlock(&s->lock);

	w->received++;
	w->seen = bpf_ktime_get_ns();
	if (answered) {
		w->duplicates++;
		w->resent++;
		j->resent++;
		udp->checksum = htons(m->tag | MARK_ANSWERED);
		return RESULT;
	}
	w->contributed++;
	w->last++;
	j->results++;
	j->wrapped += wraps;
	sum_time(j, now ? w->seen - now : 0);
	udp->checksum = htons(m->tag | MARK_COMPLETED);
	return RESULT;
}

#endif
