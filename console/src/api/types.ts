/** Answers of /v1 as far as the console reads them; /openapi.json has all of it. */

import type { Int } from "./json";

export interface Whoami { principal: string; authenticated: boolean; tenant: string; mechanism: string; key: string | null; expires_at: number | null; super_user: boolean }
export interface Access { enforced: boolean; cluster: string[]; any: Partial<Record<string, string[]>>; resource?: string[] }
export interface Version { version: string; node_id?: number; cluster_id?: string }
export interface PageInfo { cursor?: string; total?: number; missing_nodes?: number[] }

export interface Cluster { cluster_id: string; controller: number | null; voters: number[]; answered_by: number; nodes: number; nodes_running: number; topics: number; partitions: number; leaderless: number; under_replicated: number; moving: number }
export interface Health { status: string; problems: string[]; kinds: string[] }
export interface Totals { groups: number; lagging: number; lag: Int; nodes: { id: number; bytes: Int; free_bytes: Int; total_bytes: Int }[]; missing_nodes: number[] }
export interface ClusterNode { id: number; state: string; addresses: Record<string, string>; rack: string; voter: boolean; controller: boolean; leaders: number; replicas: number }
export interface History { step_ms: number; times: number[]; series: Record<string, (number | null)[]>; nodes: number[]; missing_nodes: number[]; kept_ms: number }

export type SettingValue = string | number | boolean | null;
export interface TopicStats { messages: Int; bytes: Int; in_per_s: number | null; in_bytes_per_s: number | null; out_per_s: number | null; out_bytes_per_s: number | null; groups: number; lag: Int | null }
export interface Topic { name: string; id: string; partitions: number; replication: number; internal: boolean; settings: Record<string, SettingValue>; stats?: TopicStats }
export interface TopicDescription extends Topic { effective_settings: Record<string, SettingValue>; messages: Int; bytes: Int }
export interface Partition { partition: number; leader: number; leader_epoch: number; replicas: number[]; in_sync: number[]; start_offset: Int; end_offset: Int; high_watermark: Int; bytes: Int }
export interface Setting { name: string; kind: string; default: SettingValue; description: string; choices?: string[] }
export interface Histogram { from: number; until: number; bucket_ms: number; counts: number[]; partitions?: number; is_estimate?: boolean; total?: number }

export interface Header { name: string; value: string | null; encoding: string }
export interface Message { id: string; topic: string; partition: number; offset: Int; timestamp: number; key: string | null; key_encoding: string; value: string | null; value_encoding: string; headers: Header[]; value_bytes?: number; is_cut?: boolean }
export interface Progress { messages: number; scanned_bytes: number; skipped_bytes: number; scanned_to: string; share: number | null }
export interface BrowseDone { elapsed_ms: number; messages: number; scanned_bytes: number; reason: string; cursor: string }
export interface Delivery { group: string; kind: string; state: string; attempts: number | null; consumer: string | null; leased_until: number | null; due_at: number | null }
export interface Published { topic: string; id?: string; partition?: number; offset?: Int; schedule_id?: string; deliver_at?: number }
export interface JourneyMessage { topic: string; id?: string; partition?: number; offset?: Int; schedule_id?: string }
export interface JourneyEntry { kind: string; message: JourneyMessage; time: number; after_ms?: number; node?: number; group?: string; consumer?: string; attempt?: number; principal?: string; client_id?: string; listener?: string; reason?: string; replicas?: number; due?: number; recovered?: boolean }
export interface JourneyStanding { outcome: string; message: JourneyMessage; time: number; group?: string; attempts?: number; consumer?: string; reason?: string }
export interface Journey { message: JourneyMessage; messages: JourneyMessage[]; entries: JourneyEntry[]; outcomes: JourneyStanding[]; complete: boolean }

export interface GroupStats { members: number; topics: number; lag: Int | null; lag_ms: number | null; in_flight: number | null }
export interface Group { name: string; kind: string; state: string; share?: boolean; stats?: GroupStats }
export interface TopicGroup { name: string; kind: string; state: string; share: boolean; stats: GroupStats }
export interface TopicPartitions { topic: string; partitions: number[] }
export interface GroupMember { member_id: string; instance_id: string | null; client_host: string; member_epoch: number; subscribed_topics: string[]; topic_pattern: string; assigned: TopicPartitions[]; target: TopicPartitions[] }
export interface GroupDescription { kind: string; name: string; state?: string; epoch?: number; assignor?: string; members?: GroupMember[]; member_count?: number; settings?: Record<string, SettingValue>; topics?: string[] }
export interface ShareMember { member_id: string; client_id: string; client_host: string; rack: string | null; member_epoch: number; subscribed_topics: string[]; assigned: TopicPartitions[] }
export interface ShareMembers { group: string; state: string; epoch: number; assignor: string; members: ShareMember[]; cursor: string; total: number }
export interface PartitionLag { topic: string; partition: number; offset: Int | null; end_offset: Int; lag: Int; lag_ms?: number | null }
export interface Lag { group: string; kind: string; lag: Int; lag_ms: number | null; topics: string[]; partitions: PartitionLag[]; cursor: string; total: number }
export interface Rebalances { under_way: boolean; count: number; timeouts: number; partitions_moved: number; duration_ms_last: number; duration_ms_max: number; history: { started_at: number; duration_ms: number; reason: string; partitions_moved: number }[] }
export interface LaneStats { lane: string; ready: number; in_flight: number; in_total: number; out_total: number; in_per_second: number; out_per_second: number; oldest_age_ms: number; longest_wait_ms: number }
export interface QueueStats { group: string; topic: string; ready: number; in_flight: number; retrying: number; parked: number; dead_lettering: number; prepared: number; delayed: number; totals: Record<string, number>; lanes: LaneStats[] }
export interface InFlight { topic: string; partition: number; offset: Int; id: string; consumer: string; attempt: number; leased_at: number; leased_until: number; priority: string }
export interface Peeked extends Message { priority: string; state: string; attempts: number; consumer: string | null; leased_until: number | null; due_at: number | null }

export interface DeadLetterTopic { topic: string; dead_letter_topic: string; messages: Int; bytes: Int }
export interface DeadLetter extends Message { reason: string | null; attempts: number | null; died_at: number | null; source: { topic: string; partition: number; offset: Int; group: string } | null }
export interface Redrive { id: string; topic: string; dead_letter_topic: string; state: string; moved: number; passed_over: number; failed: number; remaining: number; keep_copy: boolean; rate_per_s: number | null; created_at: number; ended_at: number | null; problem: string }

export interface ScheduleEntry { id: string; topic: string; deliver_at: number }
export interface Schedule extends Message { deliver_at: number }
export interface ScheduleStats { pending: number; released: number; cancelled: number; dead_lettered: number; dropped: number; late_ms_p50: number; late_ms_p99: number; late_ms_max: number; next_deliver_at: number | null }
export interface Transaction { id: string; transactional_id: string; state: string; producer_id: Int; producer_epoch: number; timeout_ms: number; started_at: number | null; updated_at: number; participants: { topic: string; partition: number }[] }

export interface SchemaVersion { subject: string; version: number; id: number; schema: string; schemaType?: string; references?: SchemaReference[] }
export interface SchemaReference { name: string; subject: string; version: number }
export interface SubjectOverview { subject: string; version: number; id: number; type: string; versions: number }

export interface PlacedPartition { topic: string; partition: number; leader: number | null; leader_epoch: number; replicas: number[]; in_sync: number[]; target?: number[] }
export interface MovingPartition { topic: string; partition: number; leader: number | null; replicas: number[]; target: number[]; progress: number; bytes_left?: Int; bytes_per_second?: number; remaining_ms?: number | null }
export interface PlannedMove { topic: string; partition: number; replicas_before: number[]; replicas: number[] }

export interface ReportFigure { value: string; text: string }
export interface ReportEntry { name: string; written_at: number; figures: ReportFigure[] }
export interface ReportTable { title: string; columns: string[]; rows: string[][] }
export interface Report extends ReportEntry { sections: { title: string; texts: string[]; tables: ReportTable[] }[] }

export interface User { name: string; tenant: string; created_at: number; disabled: boolean; super_user: boolean; mechanisms: string[]; keys: number }
export interface Key { id: string; kind: string; user: string; created_at: number; created_by: string; expires_at: number | null; last_used_at: number | null; description: string }
export interface Acl { kind: string; pattern: string; name: string; principal: string; host: string; action: string; permission: string }
export interface Role { name: string; members: string[] }
export interface Quota { entity: Record<string, string | null>; limits: Record<string, number> }
export interface QuotaUse { entity: Record<string, string | null>; limit: string; value: number; used: number; wait_ms: number }
export interface TenantUsage { users: number; topics: number; partitions: number; queues: number; groups: number; subjects: number; scheduled: number; stored_bytes: Int }
export interface Tenant { name: string; account: string; state: string; description: string; created_at: number; users: number; topics: number }
