/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* At the cgroup of a pod that has the host's network: counts what its sockets send and receive. Drops nothing. */
#include "packet.h"
#include "size.h"

struct traffic {
	__u64 packets[2]; /* as on the wire: segments, not what is handed to the NIC to be cut; [0] sent, [1] received */
	__u64 bytes[2];
};

/* Counted is who has an entry: the agent makes and removes them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* a value for each CPU that there could be: megabytes, else */
	__uint(max_entries, MOST_CGROUPS);
	__type(key, __u64); /* cgroup id */
	__type(value, struct traffic);
} traffic SEC(".maps");

static __always_inline int count(struct __sk_buff *skb, int direction)
{
	__u64 id = known_cgroup(skb, &traffic);
	struct traffic *its = id ? bpf_map_lookup_elem(&traffic, &id) : 0;
	if (its) { /* of this CPU alone, and never two at once on it */
		its->packets[direction] += segments(skb);
		its->bytes[direction] += wire_bytes(skb, ETHERNET_HEADER);
	}
	return 1;
}

SEC("cgroup_skb/egress")
int count_tx(struct __sk_buff *skb)
{
	return count(skb, 0);
}

SEC("cgroup_skb/ingress")
int count_rx(struct __sk_buff *skb)
{
	return count(skb, 1);
}

char _license[] SEC("license") = "Dual BSD/GPL";
