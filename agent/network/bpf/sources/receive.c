/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* At an IFB through which a NIC receives: names the class by whom the packet is for, and its HTB obeys. Drops nothing. */
#include "packet.h"

SEC("tc")
int classify_rx(struct __sk_buff *skb)
{
	__u32 class = class_by_address(skb, DESTINATION);
	if (class != skb->priority)
		skb->priority = class; /* 0: the default class */
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
