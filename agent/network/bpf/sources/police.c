/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Where nothing can queue: drops what is above a class's limit. A token bucket, kept as the time at which all that
 * was let through is paid for. At the host's end of a pod's veth that tells whose it is; at a NIC who sends is known
 * by the source address, else the cgroup; who receives by the destination. */
#include "packet.h"
#include "size.h"

#define MOST_LIMITS 2048
#define SECOND 1000000000ull

enum direction { TX, RX };

struct limit_key {
	__u32 class;
	__u32 direction;
};

struct limit {
	__u64 rate;  /* bytes a second, more than 0 */
	__u64 burst; /* nanoseconds' worth of rate that may be saved up while idle */
};

struct bucket {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 paid;  /* bpf_ktime_get_ns at which all that passed is paid for */
	__u64 carry; /* what that lacks, in bytes * SECOND modulo rate: no rounding, whatever the rate */
	__u64 passed_packets, passed_bytes, dropped_packets, dropped_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_LIMITS);
	__type(key, struct limit_key);
	__type(value, struct limit);
} limits SEC(".maps");

/* State apart from configuration: a changed limit, or a new program, spends what the old had saved. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_LIMITS);
	__type(key, struct limit_key);
	__type(value, struct bucket);
} buckets SEC(".maps");

static __always_inline struct bucket *bucket_of(struct limit_key *key, __u64 now)
{
	struct bucket *found = bpf_map_lookup_elem(&buckets, key);
	if (!found) { /* new buckets are empty: the first second is no exception */
		struct bucket empty = {.paid = now};
		bpf_map_update_elem(&buckets, key, &empty, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&buckets, key);
	}
	return found;
}

static __always_inline int police(struct __sk_buff *skb, enum direction direction)
{
	struct limit_key key = {.direction = direction};
	struct limit *limit;
	struct bucket *bucket;
	__u64 now, bytes, rate, burst, cost;
	__u32 packets;
	int passes;

	key.class = class_by_interface(skb);
	if (!key.class)
		key.class = class_by_address(skb, direction == TX ? SOURCE : DESTINATION);
	if (!key.class && direction == TX)
		key.class = class_by_cgroup(skb);
	limit = key.class ? bpf_map_lookup_elem(&limits, &key) : 0;
	if (!limit || !limit->rate)
		return TC_ACT_UNSPEC;
	now = bpf_ktime_get_ns();
	bucket = bucket_of(&key, now);
	if (!bucket)
		return TC_ACT_UNSPEC; /* the map is full: rather no limit than no traffic */
	bytes = wire_bytes(skb, 0);
	packets = segments(skb);
	rate = limit->rate;
	burst = limit->burst;

	bpf_spin_lock(&bucket->lock);
	if (bucket->paid + burst < now)
		bucket->paid = now - burst;
	passes = bucket->paid <= now; /* one packet may overdraw it, so that any size passes */
	if (passes) {
		cost = bytes * SECOND + bucket->carry;
		bucket->paid += cost / rate;
		bucket->carry = cost % rate;
		bucket->passed_packets += packets;
		bucket->passed_bytes += bytes;
	} else {
		bucket->dropped_packets += packets;
		bucket->dropped_bytes += bytes;
	}
	bpf_spin_unlock(&bucket->lock);
	return passes ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

SEC("tc")
int police_tx(struct __sk_buff *skb)
{
	return police(skb, TX);
}

SEC("tc")
int police_rx(struct __sk_buff *skb)
{
	return police(skb, RX);
}

char _license[] SEC("license") = "Dual BSD/GPL";
