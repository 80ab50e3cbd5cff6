variable "region" {
  type = string
}

variable "name" {
  description = "Begins the names of all resources."
  type        = string
  default     = "goqueue"
}

variable "nodes" {
  type    = number
  default = 3
}

variable "subnet_ids" {
  description = "Subnets of one VPC, best in as many zones as there are nodes."
  type        = list(string)
}

variable "ami" {
  description = "An image of Debian 12 or newer, or Ubuntu 24.04 or newer."
  type        = string
}

variable "instance_type" {
  type    = string
  default = "m7g.large"
}

variable "disk_gib" {
  type    = number
  default = 100
}

variable "ssh_key" {
  description = "Name of a key pair, for emergencies."
  type        = string
  default     = null
}

variable "ssh_cidrs" {
  type    = list(string)
  default = []
}

variable "client_cidrs" {
  description = "Who may connect to the listeners for clients."
  type        = list(string)
}

variable "package" {
  type    = string
  default = "goqueue[server,grpc]"
}

variable "security" {
  type    = string
  default = "sasl_plaintext"
}

variable "settings" {
  type    = any
  default = {}
}

variable "secrets" {
  type      = map(string)
  default   = {}
  sensitive = true
}

variable "tags" {
  type    = map(string)
  default = {}
}
